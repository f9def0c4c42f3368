//go:build experiment_static

package experiment

// The archive comes first and has everything, so that the shared library is not needed any more.

// #cgo pkg-config: --static experiment
// #cgo LDFLAGS: -Wl,--as-needed -l:libexperiment.a
import "C"
