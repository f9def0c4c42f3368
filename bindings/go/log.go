package experiment

/*
#include <stddef.h>
#include <stdint.h>
*/
import "C"

import (
	"runtime/cgo"

	"github.com/amplitude/libexperiment/bindings/go/logger"
)

// The library's log levels, by their numbers in the header.
const (
	logError = iota + 1
	logWarn
	logInfo
	logDebug
)

// logThreshold is the loudest of the library's levels that is wanted; 0 for none.
func (c *Config) logThreshold() int {
	if c.LoggerProvider == nil {
		return 0
	}
	switch c.LogLevel {
	case logger.Verbose, logger.Debug:
		return logDebug
	case logger.Info:
		return logInfo
	case logger.Warn:
		return logWarn
	case logger.Disable:
		return 0
	case logger.Unknown:
		if c.Debug {
			return logDebug
		}
	}
	return logError
}

// experimentGoLog is called by the library, on threads of its own too.
//
//export experimentGoLog
func experimentGoLog(sink C.uintptr_t, level C.int32_t, message *C.char, length C.size_t) {
	to := cgo.Handle(sink).Value().(logger.LoggerProvider)
	line := C.GoStringN(message, C.int(length))
	// A panic would leave the library in the middle of a call, or, on its own threads, end the program.
	defer func() { _ = recover() }()
	if isSubmitting() {
		// The logger may wait for another fetch, and that for a place.
		<-calls
		defer func() { calls <- struct{}{} }()
	}
	// A format of its own: what the line says is nothing to be formatted.
	switch level {
	case logError:
		to.Error("%s", line)
	case logWarn:
		to.Warn("%s", line)
	case logInfo:
		to.Info("%s", line)
	default:
		to.Debug("%s", line)
	}
}

// experimentGoLogDone is called by the library when it will not log to the sink any more.
//
//export experimentGoLogDone
func experimentGoLogDone(sink C.uintptr_t) {
	cgo.Handle(sink).Delete()
}
