//go:build experiment_static

package experiment

// The archive comes first and has everything, so that the shared library is not needed any more. Of what it
// needs itself libgcc's unwinder is not named: the compiler links that of its own accord, which is a shared
// library, but another one for -static. Hence not pkg-config's --static.

// #cgo pkg-config: experiment
// #cgo LDFLAGS: -Wl,--as-needed -l:libexperiment.a -lutil -lrt -lpthread -lm -ldl
import "C"
