module call

go 1.24

require github.com/amplitude/libexperiment/bindings/go v0.1.0

replace github.com/amplitude/libexperiment/bindings/go => ../../../bindings/go
