module github.com/amplitude/libexperiment/bindings/go

go 1.24
