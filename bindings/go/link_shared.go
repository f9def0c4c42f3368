//go:build !experiment_static

package experiment

// #cgo pkg-config: experiment
import "C"
