//go:build !cgo

package experiment

// Without cgo this is all that there is of the package, so that what the compiler says is one sentence.
var _ = libexperiment_is_a_C_library__set_CGO_ENABLED_to_1_and_install_a_C_compiler
