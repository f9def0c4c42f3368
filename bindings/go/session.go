package experiment

// #include "bridge.h"
import "C"

import (
	"context"
	"os"
	"runtime"
	"runtime/cgo"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// session is what a client has in the library: the client there, and a queue in which its fetches are
// found when they are over. One goroutine watches the queue's descriptor, parked in Go's poller, and
// wakes who waits; so neither an idle client nor a fetch under way holds a thread.
type session struct {
	client *C.exp_client
	queue  *C.exp_completions
	// watch is the queue's descriptor. Closing it ends the goroutine, which closes `gone`.
	watch *os.File
	gone  chan struct{}
	// holders are those who may use the above: the Client until it is closed, and each call inside.
	// The last to leave frees it.
	holders atomic.Int64
	close   sync.Once
}

// calls has room for as many calls as may be inside the library at once. There they may wait for a lock,
// and hold a thread each; here they are but goroutines. A logger does not count: see experimentGoLog.
var calls = make(chan struct{}, runtime.GOMAXPROCS(0))

func newSession(apiKey string, config *Config) (*session, *FetchError) {
	client, failure := newNativeClient(apiKey, config)
	if failure != nil {
		return nil, failure
	}
	queue, watch, failure := newQueue()
	if failure != nil {
		free(unsafe.Pointer(client))
		return nil, failure
	}
	s := &session{client: client, queue: queue, watch: watch, gone: make(chan struct{})}
	s.holders.Store(1)
	go s.deliver()
	return s, nil
}

// enter begins a call; false if everything is freed already.
func (s *session) enter() bool {
	for {
		holders := s.holders.Load()
		if holders == 0 {
			return false
		}
		if s.holders.CompareAndSwap(holders, holders+1) {
			return true
		}
	}
}

// leave ends a call.
func (s *session) leave() {
	if s.holders.Add(-1) > 0 {
		return
	}
	s.watch.Close()
	<-s.gone
	free(unsafe.Pointer(s.client))
	free(unsafe.Pointer(s.queue))
}

// abandon gives up what the Client holds. Fetches that are under way go on.
func (s *session) abandon() { s.close.Do(s.leave) }

// deliver wakes those whose fetches are over, until the descriptor is closed.
//
// Go's poller reports an edge: it wakes when the descriptor becomes readable, not while it is. The
// library makes it readable when the queue gets its first entry and unreadable when the last is taken;
// so whoever empties the queue before waiting misses nothing.
func (s *session) deliver() {
	defer close(s.gone)
	watch, err := s.watch.SyscallConn()
	if err != nil {
		return
	}
	var over outcome
	_ = watch.Read(func(uintptr) bool {
		for token, found := over.next(s.queue); found; token, found = over.next(s.queue) {
			waiter := token.Value().(chan outcome)
			token.Delete()
			waiter <- over
		}
		return false // wait for more
	})
}

// fetch sends a request and waits for what it came to. The end of the context is the end of the fetch.
func (s *session) fetch(ctx context.Context, request *request) (outcome, *FetchError) {
	var pending *C.exp_pending
	var wanted **C.exp_pending
	if ctx.Done() != nil {
		wanted = &pending
	}
	// With room for the outcome, so that the deliverer never waits.
	waiter := make(chan outcome, 1)
	token := cgo.NewHandle(waiter)
	calls <- struct{}{}
	failure := request.submit(ctx, s.client, s.queue, token, wanted)
	<-calls
	if failure != nil {
		token.Delete()
		return outcome{}, failure
	}
	defer free(unsafe.Pointer(pending))
	select {
	case over := <-waiter:
		return over, nil
	case <-ctx.Done():
		// A deadline the library keeps itself, and says what the fetch was waiting for.
		if deadline, bounded := ctx.Deadline(); !bounded || time.Now().Before(deadline) {
			calls <- struct{}{}
			cancelPending(pending)
			<-calls
		}
		return <-waiter, nil
	}
}

// shutdown refuses new fetches and waits for those that run; the end of the context cuts them off.
// True if that was not needed.
func (s *session) shutdown(ctx context.Context) bool {
	cut := make(chan bool, 1)
	stop := context.AfterFunc(ctx, func() { cut <- !closeNative(s.client, NoTime) })
	closeNative(s.client, NoLimit)
	s.abandon()
	return stop() || !<-cut
}
