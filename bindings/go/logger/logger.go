// Package logger holds the words for logging that experiment-go-server has in its package of the same
// name, and a way from there to log/slog.
package logger

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
)

// LogLevel is how loud a line must be to be written.
type LogLevel int

const (
	// Unknown is no choice: Error, or Debug if the Config says Debug.
	Unknown LogLevel = iota
	// Verbose and Debug write everything.
	Verbose
	Debug
	// Info, Warn and Error write lines that are as loud as that, and louder ones.
	Info
	Warn
	Error
	// Disable writes nothing.
	Disable
)

// LoggerProvider takes log lines: a format of package fmt, and its arguments. Its methods are called
// by several threads at once. They hold a fetch up if they are slow, and must not close the client; a
// panic in one is dropped.
type LoggerProvider interface {
	Verbose(message string, args ...interface{})
	Debug(message string, args ...interface{})
	Info(message string, args ...interface{})
	Warn(message string, args ...interface{})
	Error(message string, args ...interface{})
}

// NewDefault writes to standard error, by package log.
func NewDefault() LoggerProvider {
	return toLog{log.New(os.Stderr, "", log.LstdFlags)}
}

// NewSlog writes to a logger of log/slog.
func NewSlog(logger *slog.Logger) LoggerProvider {
	return toSlog{logger}
}

type toLog struct{ logger *log.Logger }

func (l toLog) Verbose(message string, args ...interface{}) { l.write("VERBOSE", message, args) }
func (l toLog) Debug(message string, args ...interface{})   { l.write("DEBUG", message, args) }
func (l toLog) Info(message string, args ...interface{})    { l.write("INFO", message, args) }
func (l toLog) Warn(message string, args ...interface{})    { l.write("WARN", message, args) }
func (l toLog) Error(message string, args ...interface{})   { l.write("ERROR", message, args) }

func (l toLog) write(level, message string, args []interface{}) {
	l.logger.Print(level, " - ", fmt.Sprintf(message, args...))
}

type toSlog struct{ logger *slog.Logger }

func (l toSlog) Verbose(message string, args ...interface{}) { l.write(slog.LevelDebug, message, args) }
func (l toSlog) Debug(message string, args ...interface{})   { l.write(slog.LevelDebug, message, args) }
func (l toSlog) Info(message string, args ...interface{})    { l.write(slog.LevelInfo, message, args) }
func (l toSlog) Warn(message string, args ...interface{})    { l.write(slog.LevelWarn, message, args) }
func (l toSlog) Error(message string, args ...interface{})   { l.write(slog.LevelError, message, args) }

func (l toSlog) write(level slog.Level, message string, args []interface{}) {
	if ctx := context.Background(); l.logger.Enabled(ctx, level) {
		l.logger.Log(ctx, level, fmt.Sprintf(message, args...))
	}
}
