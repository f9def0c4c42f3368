package experiment

/*
#cgo noescape go_read_variants
#cgo noescape go_read_error
#cgo noescape go_read_report
#include "bridge.h"
*/
import "C"

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"runtime/cgo"
	"strings"
	"time"
	"unsafe"
)

// C is called here and in settings.go, and calls log.go; everything else is Go.
//
// "noescape" keeps on the stack what C fills in. It is not said of functions that may log, and so come
// back to Go: the stack may be moved meanwhile.

// statusName is the status's name in the header.
func statusName(status Status) string {
	return C.GoString(C.exp_status_name(C.int32_t(status)))
}

// loadedVersion is that of the library that runs.
func loadedVersion() string { return C.GoString(C.exp_version()) }

// checkVersion fails for a library that this package was not written for: before 1.0, another minor
// version may mean something else by the same call.
func checkVersion(loaded string) *FetchError {
	series := func(version string) string { return version[:max(strings.LastIndexByte(version, '.'), 0)] }
	if series(loaded) == series(Version) {
		return nil
	}
	message := fmt.Sprintf("libexperiment %s is loaded; this package is of version %s and needs %s.x", loaded, Version, series(Version))
	return &FetchError{Status: StatusInvalidArgument, Message: message, Phase: PhaseNone}
}

// newNativeClient makes a client of the library's, to be freed.
func newNativeClient(apiKey string, config *Config) (*C.exp_client, *FetchError) {
	settings := config.native()
	defer free(unsafe.Pointer(settings))
	var client *C.exp_client
	var failure *C.exp_error
	status := C.exp_client_new_n(chars(apiKey), length(apiKey), settings, &client, &failure)
	if status != C.EXP_OK {
		return nil, takeError(status, failure)
	}
	return client, nil
}

// closeNative closes the client and waits no longer than that for its fetches to end. It tells whether
// they have.
func closeNative(client *C.exp_client, wait time.Duration) bool {
	return C.exp_client_close(client, millis(wait)) == C.EXP_OK
}

type metricsFormat int

const (
	metricsJSON        metricsFormat = C.EXP_METRICS_JSON
	metricsOpenMetrics metricsFormat = C.EXP_METRICS_OPENMETRICS
)

func readMetrics(client *C.exp_client, format metricsFormat) ([]byte, *FetchError) {
	var text *C.exp_text
	var failure *C.exp_error
	status := C.exp_client_metrics(client, C.int32_t(format), &text, &failure)
	if status != C.EXP_OK {
		return nil, takeError(status, failure)
	}
	defer free(unsafe.Pointer(text))
	return C.GoBytes(unsafe.Pointer(C.exp_text_value(text)), C.int(C.exp_text_length(text))), nil
}

// request is a fetch as the library takes it.
type request struct {
	user        []byte
	options     C.go_options
	flagKeys    string
	flagLengths []C.size_t
}

func newRequest(user *User, options *FetchOptions) (*request, *FetchError) {
	encoded, err := user.encode()
	if err != nil {
		return nil, unwritable(err)
	}
	request := &request{user: encoded, flagKeys: strings.Join(options.FlagKeys, "")}
	request.options = C.go_options{
		tracks_assignment: choice(options.TracksAssignment),
		tracks_exposure:   choice(options.TracksExposure),
	}
	for _, key := range options.FlagKeys {
		request.flagLengths = append(request.flagLengths, length(key))
	}
	return request, nil
}

func choice(tracking Tracking) C.int32_t {
	switch tracking {
	case ServiceDecides:
		return C.EXP_UNSET
	case NoTrack:
		return C.EXP_FALSE
	case Track:
		return C.EXP_TRUE
	}
	return math.MaxInt32 // which the library refuses
}

// deadlineOf is what is left of the context's time, a fraction of a millisecond rounded up: who gets a
// timeout finds the context ended. More than a day, which is all that the library takes, is cut to that.
func deadlineOf(ctx context.Context) C.uint64_t {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return C.EXP_NO_LIMIT
	}
	return millis(min(max(time.Until(deadline), 0), 24*time.Hour))
}

// submit starts a fetch, which is found in the queue by its token. If `pending` is not nil, it is what
// to cancel the fetch with, to be freed.
func (r *request) submit(ctx context.Context, client *C.exp_client, queue *C.exp_completions, token cgo.Handle, pending **C.exp_pending) *FetchError {
	var failure *C.exp_error
	r.options.deadline_millis = deadlineOf(ctx)
	status := C.go_submit(client, queue, C.uintptr_t(token),
		(*C.char)(unsafe.Pointer(unsafe.SliceData(r.user))), C.size_t(len(r.user)),
		&r.options, chars(r.flagKeys), unsafe.SliceData(r.flagLengths), C.size_t(len(r.flagLengths)),
		pending, &failure)
	if status != C.EXP_OK {
		return takeError(status, failure)
	}
	return nil
}

// isSubmitting tells whether the library has called Go from within a submit on this thread.
func isSubmitting() bool { return C.go_is_submitting() != 0 }

func cancelPending(pending *C.exp_pending) { C.exp_pending_cancel(pending) }

// outcome is what a fetch came to, in the library's memory.
type outcome C.go_outcome

// next takes a fetch that is over out of the queue, with the token that it was submitted with; false if
// there is none.
func (o *outcome) next(queue *C.exp_completions) (token cgo.Handle, found bool) {
	found = C.go_next(queue, (*C.go_outcome)(o)) != 0
	return cgo.Handle(o.token), found
}

// take is the same in Go's memory; the library's is freed. How the fetch went is written to
// options.Report, if there is one. What is left of the fetch's time holds for this, too.
func (o *outcome) take(ctx context.Context, options *FetchOptions, wanted func(Variant) bool) (map[string]Variant, *FetchError) {
	if o.status != C.EXP_OK {
		return nil, takeError(o.status, o.error)
	}
	defer free(unsafe.Pointer(o.variants))
	variants, complete := readVariants(ctx, o.variants, int(o.count), wanted)
	report := readReport(o.variants, nil)
	if !complete {
		return nil, unmade(ctx, report)
	}
	if options.Report != nil {
		*options.Report = report
	}
	return variants, nil
}

// A piece is what is read in one call and made between two looks at the clock: so many variants, or so
// many bytes, of which the worst take two milliseconds. The variants are few, because all goroutines whose time
// is over have yet to come to their next look, one after the other.
const (
	pieceVariants = 32
	pieceBytes    = 32 << 10
)

// readVariants makes those that are wanted; false if the fetch's time or the context ended meanwhile.
func readVariants(ctx context.Context, variants *C.exp_variants, count int, wanted func(Variant) bool) (map[string]Variant, bool) {
	// A map of many more is not made at once, but grows by little ones.
	result := make(map[string]Variant, min(count, pieceVariants))
	lent := make([]C.go_variant, min(count, pieceVariants))
	for first := 0; first < count; {
		var left C.uint64_t
		read := C.go_read_variants(variants, C.size_t(first), unsafe.SliceData(lent),
			C.size_t(min(count-first, len(lent))), pieceBytes, &left)
		if left == 0 || ctx.Err() != nil {
			return nil, false
		}
		ends := time.Now().Add(microseconds(left))
		for _, native := range lent[:read] {
			variant, made := makeVariant(ctx, native, ends)
			if !made {
				return nil, false
			}
			if wanted == nil || wanted(variant) {
				result[copied(native.flag_key)] = variant
			}
		}
		first += int(read)
	}
	return result, true
}

func makeVariant(ctx context.Context, native C.go_variant, ends time.Time) (Variant, bool) {
	variant := Variant{Key: copied(native.key), Value: copied(native.value), payload: bytes.Clone(borrowed(native.payload))}
	payload, inTime := decodedBy(ctx, ends, variant.payload)
	if !inTime {
		return Variant{}, false
	}
	lent := borrowed(native.metadata)
	if len(lent) > pieceBytes {
		lent = bytes.Clone(lent) // who decodes it may be left behind
	}
	metadata, inTime := decodedBy(ctx, ends, lent)
	variant.Payload = payload
	variant.Metadata, _ = metadata.(map[string]interface{})
	return variant, inTime
}

// microseconds is a time of the library's; the longest that there is for one without a limit.
func microseconds(micros C.uint64_t) time.Duration {
	return time.Duration(min(micros, math.MaxInt64/1000)) * time.Microsecond
}

// readReport is how the fetch went that one of the two came of.
func readReport(variants *C.exp_variants, failure *C.exp_error) Report {
	var native C.go_report
	C.go_read_report(variants, failure, &native)
	report := Report{Attempts: int(native.attempts), ConnectionReused: native.connection_reused != 0}
	for phase, micros := range native.phase_micros {
		report.Phases[phase] = time.Duration(micros) * time.Microsecond
	}
	return report
}

// takeError is the library's error as one of Go's; the library's is freed.
func takeError(status C.exp_status, failure *C.exp_error) *FetchError {
	defer free(unsafe.Pointer(failure))
	var native C.go_failure
	C.go_read_error(failure, &native)
	return &FetchError{
		Status:     Status(status),
		Message:    copied(native.message),
		HTTPStatus: int(native.http_status),
		Retryable:  native.retryable != 0,
		RetryAfter: time.Duration(native.retry_after_millis) * time.Millisecond,
		Phase:      Phase(native.phase),
		Report:     readReport(nil, failure),
	}
}

// newQueue makes a queue for fetches that are over, to be freed, and a file of the caller's that is
// readable while there is something in it.
func newQueue() (*C.exp_completions, *os.File, *FetchError) {
	queue := C.exp_completions_new()
	if queue != nil {
		if fd := C.go_watched(queue); fd >= 0 {
			file := os.NewFile(uintptr(fd), "experiment")
			// The descriptor does not block, so the file has deadlines if Go's poller has taken it.
			if file.SetReadDeadline(time.Time{}) == nil {
				return queue, file, nil
			}
			file.Close()
		}
	}
	free(unsafe.Pointer(queue))
	return nil, nil, &FetchError{Status: StatusInternal, Message: "no descriptor is left, or none can be watched", Phase: PhaseNone}
}

// free gives up an object of the library's.
func free(object unsafe.Pointer) {
	if object != nil {
		C.exp_free(object)
	}
}

// chars and length are a text of Go's, lent for one call.
func chars(s string) *C.char   { return (*C.char)(unsafe.Pointer(unsafe.StringData(s))) }
func length(s string) C.size_t { return C.size_t(len(s)) }

// borrowed is a text of the library's, as long as its owner lives.
func borrowed(text C.go_text) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(text.bytes)), text.length)
}

func copied(text C.go_text) string { return string(borrowed(text)) }
