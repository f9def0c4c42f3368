module load

go 1.24

require github.com/amplitude/libexperiment/bindings/go v0.1.0

require github.com/amplitude/experiment-go-server v1.12.0

replace github.com/amplitude/libexperiment/bindings/go => ../../../bindings/go
