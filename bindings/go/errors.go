//go:build cgo

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Status is what came of a fetch. The numbers are those of the library's header.
type Status int

const (
	// StatusOK: there are variants; no FetchError has it.
	StatusOK Status = iota
	// StatusInvalidArgument: an argument or a setting is not what it must be; the message names it.
	StatusInvalidArgument
	// StatusTimeout: time was over, waiting for a connection or for the answer; see FetchError.Phase.
	StatusTimeout
	// StatusNetwork: the connection could not be made, or ended.
	StatusNetwork
	// StatusTLS: the certificate or the protocol was refused.
	StatusTLS
	// StatusHTTP: the service responded with a status other than 200; see FetchError.HTTPStatus.
	StatusHTTP
	// StatusInvalidResponse: the answer is no usable HTTP or JSON.
	StatusInvalidResponse
	// StatusCanceled: the context was canceled.
	StatusCanceled
	// StatusClosed: the client is closed, or closing.
	StatusClosed
	// StatusQueueFull: more fetches were under way than Config.MaxPendingFetches allows.
	StatusQueueFull
	// StatusInternal: a defect in the library was caught; the message is worth a report.
	StatusInternal
)

// String is the name in the library's header, like "EXP_ERR_TIMEOUT".
func (s Status) String() string { return statusName(s) }

// Phase is what a fetch is doing. The numbers are those of the library's header.
type Phase int

const (
	// PhaseNone: the failure was no timeout.
	PhaseNone Phase = iota - 1
	// PhasePool: waiting in line for a connection of the pool.
	PhasePool
	// PhaseResolve: looking up the host's name.
	PhaseResolve
	// PhaseConnect: opening the TCP connection, and a proxy's tunnel.
	PhaseConnect
	// PhaseTLS: shaking hands.
	PhaseTLS
	// PhaseSend: sending the request.
	PhaseSend
	// PhaseFirstByte: waiting for the head of the answer.
	PhaseFirstByte
	// PhaseBody: reading and decoding the body.
	PhaseBody
	// PhaseBackoff: waiting between two attempts.
	PhaseBackoff

	phases = int(PhaseBackoff) + 1
)

// String is the phase's name, like "first_byte".
func (p Phase) String() string {
	names := [...]string{"none", "pool", "resolve", "connect", "tls", "send", "first_byte", "body", "backoff"}
	if p < PhaseNone || p > PhaseBackoff {
		return fmt.Sprintf("Phase(%d)", int(p))
	}
	return names[p+1]
}

// Report says how a fetch went.
type Report struct {
	// Attempts is how many attempts the fetch took, the first included; 0 if it failed before that.
	Attempts int
	// ConnectionReused tells whether the last attempt went over a connection that had served before.
	ConnectionReused bool
	// Phases is the time spent in each phase, all attempts together, by PhasePool to PhaseBackoff.
	Phases [phases]time.Duration
}

// FetchError is why a fetch failed, or why there is no client. Every error of this package is one.
//
// By errors.Is a timeout, of whatever kind, is context.DeadlineExceeded and os.ErrDeadlineExceeded, a
// canceled fetch is context.Canceled, and a closed client is net.ErrClosed. What the context gives as
// its cause is found too. FetchError is a net.Error.
type FetchError struct {
	// Status is what went wrong.
	Status Status
	// Message is one line that says what happened and what to do, without the API key and without
	// anything of the user.
	Message string
	// HTTPStatus is that of the last answer; 0 when there was none.
	HTTPStatus int
	// Retryable tells whether the same call may succeed when made again.
	Retryable bool
	// RetryAfter is how long the service asked to be left alone; 0 if it did not.
	RetryAfter time.Duration
	// Phase is what the fetch was doing when its time was over.
	Phase Phase
	// Report is how far the fetch came.
	Report

	cause error
}

var _ net.Error = (*FetchError)(nil)

// Error is the status and the message.
func (e *FetchError) Error() string { return e.Status.String() + ": " + e.Message }

// Timeout tells whether time was over.
func (e *FetchError) Timeout() bool { return e.Is(context.DeadlineExceeded) }

// Temporary is Retryable, by net.Error's name.
func (e *FetchError) Temporary() bool { return e.Retryable }

// Is tells whether the error is one of those that the standard library has for it.
func (e *FetchError) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded, os.ErrDeadlineExceeded:
		return e.Status == StatusTimeout
	case context.Canceled:
		return e.Status == StatusCanceled
	case net.ErrClosed:
		return e.Status == StatusClosed
	}
	return false
}

// Unwrap is what the error came from: the cause of the context, or the user that is no JSON.
func (e *FetchError) Unwrap() error { return e.cause }

// unwritable is a user that is no JSON. What is wrong with it may be personal, and is only in the cause.
func unwritable(cause error) *FetchError {
	return &FetchError{Status: StatusInvalidArgument, Message: "the user cannot be written as JSON; errors.Unwrap says why", Phase: PhaseNone, cause: cause}
}

// closed is what every call with a closed client fails with.
func closed() *FetchError {
	return &FetchError{Status: StatusClosed, Message: "the client is closed", Phase: PhaseNone}
}

// canceled is a fetch that its context ended before it began.
func canceled(ctx context.Context) *FetchError {
	return &FetchError{Status: StatusCanceled, Message: "the context was canceled before the fetch", Phase: PhaseNone, cause: context.Cause(ctx)}
}

// unmade is a fetch that brought an answer of which there was no time to make variants.
func unmade(ctx context.Context, report Report) *FetchError {
	if errors.Is(ctx.Err(), context.Canceled) {
		return &FetchError{Status: StatusCanceled, Message: "the context was canceled while the answer's objects were made", Phase: PhaseNone, Report: report}
	}
	return &FetchError{Status: StatusTimeout, Message: "the answer came, but making its objects took longer than the timeout allows", Retryable: true, Phase: PhaseBody, Report: report}
}

// endedBy adds the cause of the context, if that is what ended the fetch.
func (e *FetchError) endedBy(ctx context.Context) *FetchError {
	if e == nil {
		return nil
	}
	if e.Status == StatusTimeout {
		awaitTimer(ctx)
	}
	if e.Status == StatusCanceled || e.Is(ctx.Err()) {
		e.cause = context.Cause(ctx)
	}
	return e
}

// awaitTimer waits for a context to end whose deadline has passed. The library may have seen that before
// the context's own timer, and who gets a timeout looks at the context next. One that does not keep its
// deadline is not waited for.
func awaitTimer(ctx context.Context) {
	if deadline, bounded := ctx.Deadline(); !bounded || time.Now().Before(deadline) {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
}
