package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// forgetful is the service, which does not remember what it was sent.
const forgetful = `{"keep": "nothing"}`

// fetchOwn fetches for a user that no other fetch has, and fails if the answer is another's.
func fetchOwn(ctx context.Context, client *Client, user int) error {
	name := strconv.Itoa(user)
	variants, err := client.FetchV2WithContext(&User{UserId: name, UserProperties: map[string]interface{}{"nonce": name}}, ctx)
	if err != nil {
		return err
	}
	if nonce := variants["demo-nonce"].Payload; nonce != name {
		return fmt.Errorf("user %s got the answer of %v", name, nonce)
	}
	return nil
}

// entries is how many there are in a directory of /proc/self: threads or descriptors.
func entries(t testing.TB, directory string) int {
	t.Helper()
	return len(must(os.ReadDir("/proc/self/" + directory)))
}

// threadsOfTheLibrary are those that it has started: it names them.
func threadsOfTheLibrary(t testing.TB) int {
	t.Helper()
	count := 0
	for _, file := range must(filepath.Glob("/proc/self/task/*/comm")) {
		name, err := os.ReadFile(file) // a thread may be gone by now
		if err == nil && strings.HasPrefix(string(name), "exp-") {
			count++
		}
	}
	return count
}

func TestTenThousandGoroutinesFetchOverEightConnectionsWithFewThreads(t *testing.T) {
	const fetches = 10_000
	service := play(t, forgetful)
	client := open(t, service, Config{FetchPoolAcquireTimeout: NoLimit})
	began, done := make(chan struct{}), make(chan error, fetches)
	threads := entries(t, "task")
	for user := range fetches {
		go func() {
			<-began
			done <- fetchOwn(context.Background(), client, user)
		}()
	}
	close(began)
	most, ours := 0, 0
	for i := range fetches {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 { // counting takes time
			most = max(most, entries(t, "task"))
			ours = max(ours, threadsOfTheLibrary(t))
		}
	}
	if ours > 8+1 { // those that exchange, and one that keeps the time
		t.Errorf("%d threads of the library", ours)
	}
	// And those of Go's that stand in for threads inside a call when it takes long: dozens on a machine
	// that stands still for a moment. A thread for each waiting fetch would be thousands.
	if most > threads+8+200 {
		t.Errorf("%d threads at most, %d before", most, threads)
	}
	if open := service.seen(t).ConnectionsOpenMax; open > 8 {
		t.Errorf("%d connections at once", open)
	}
	t.Logf("%d threads before, %d at most", threads, most)
}

func TestClientsThatHaveNotFetchedHoldNoThread(t *testing.T) {
	service := play(t, forgetful)
	threads := entries(t, "task")
	for range 50 {
		open(t, service, Config{})
	}
	// Go may have started one or two of its own meanwhile.
	if now := entries(t, "task"); now > threads+4 {
		t.Errorf("%d threads, %d before", now, threads)
	}
}

func TestAClosedClientLeavesNothingBehind(t *testing.T) {
	service := play(t, forgetful)
	cycle := func() {
		client := open(t, service, Config{LoggerProvider: &recorder{}})
		for user := range 3 {
			if err := fetchOwn(context.Background(), client, user); err != nil {
				t.Fatal(err)
			}
		}
		client.Close()
	}
	cycle()
	goroutines, descriptors, threads := runtime.NumGoroutine(), entries(t, "fd"), entries(t, "task")
	for range 50 {
		cycle()
	}
	waitFor(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
	waitFor(t, "the descriptors to be closed", func() bool { return entries(t, "fd") <= descriptors })
	// Go may have started a few of its own meanwhile.
	waitFor(t, "the threads to end", func() bool { return entries(t, "task") <= threads+4 })
}

// What is large is kept by what might be kept: the user by a fetch, the answer by its variants. Errors
// are small, and so made often.
func TestFetchesLeaveNoMemoryBehindHoweverTheyEnd(t *testing.T) {
	large := strings.Repeat("x", 20_000)
	client := open(t, play(t, `{"keep": "nothing", "answers": [{"json": {"flag": {"payload": "`+large+`"}}}]}`), Config{})
	user := &User{UserProperties: map[string]interface{}{"large": large}}
	fetch := func(timeout time.Duration, user *User, times int) {
		for range times {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			if _, err := client.FetchV2WithContext(user, ctx); (err == nil) != (timeout > 0) {
				t.Fatal(err)
			}
			cancel()
		}
	}
	all := func() int {
		fetch(time.Minute, user, 200)
		fetch(0, user, 200)
		fetch(0, nil, 20_000)
		debug.FreeOSMemory()
		return residentBytes()
	}
	all()
	before := all()
	if grown := all() - before; grown > 2<<20 {
		t.Errorf("%d bytes were kept; had any of it been, it would be 3 MB or more", grown)
	} else {
		t.Logf("%d bytes more", grown)
	}
}

// residentBytes is the memory that the process has.
func residentBytes() int {
	var total, resident int
	must(fmt.Sscan(string(must(os.ReadFile("/proc/self/statm"))), &total, &resident))
	return resident * os.Getpagesize()
}

func TestAChildProcessInheritsNoDescriptor(t *testing.T) {
	inherited := func() string { return string(must(exec.Command("ls", "/proc/self/fd").Output())) }
	before := inherited()
	client := open(t, play(t, forgetful), Config{})
	if err := fetchOwn(context.Background(), client, 1); err != nil {
		t.Fatal(err)
	}
	if after := inherited(); after != before {
		t.Errorf("a child has the descriptors %q, without a client %q", after, before)
	}
}

func TestWhatIsWatchedIsNoStandardStreamThoughTheseAreClosed(t *testing.T) {
	kept := []int{must(syscall.Dup(0)), must(syscall.Dup(1))}
	for stream, saved := range kept { // two, for the queue's own descriptor may be one of them
		syscall.Close(stream)
		defer func() {
			syscall.Dup2(saved, stream)
			syscall.Close(saved)
		}()
	}
	queue, watch, failure := newQueue()
	if failure != nil {
		t.Fatal(failure)
	}
	defer free(unsafe.Pointer(queue))
	defer watch.Close()
	must(watch.SyscallConn()).Control(func(descriptor uintptr) {
		if descriptor <= 2 {
			t.Errorf("descriptor %d is watched", descriptor)
		}
	})
}

func TestAClientThatIsForgottenIsClosedByTheCollector(t *testing.T) {
	service := play(t, forgetful)
	goroutines, descriptors := runtime.NumGoroutine(), entries(t, "fd")
	func() {
		client, err := NewClient("key", &Config{ServerUrl: service.Url, FetchTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if err := fetchOwn(context.Background(), client, 1); err != nil {
			t.Fatal(err)
		}
	}()
	waitFor(t, "the client to be closed", func() bool {
		runtime.GC()
		return runtime.NumGoroutine() <= goroutines && entries(t, "fd") <= descriptors
	})
}

func TestAFetchOutlivesTheLastReferenceToItsClient(t *testing.T) {
	service := play(t, `{"answers": [{"delay_millis": 200}]}`)
	done := make(chan error)
	go func() {
		client := must(NewClient("key", &Config{ServerUrl: service.Url, FetchTimeout: time.Minute}))
		done <- fetchOwn(context.Background(), client, 1)
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		case <-time.After(5 * time.Millisecond):
			runtime.GC()
		}
	}
}

// The collector interrupts running goroutines by a signal, SIGURG, also those that are about to call into
// C or come back, and it moves their stacks.
func TestTheCollectorAndItsSignalsDisturbNoFetch(t *testing.T) {
	if err := pprof.StartCPUProfile(io.Discard); err != nil { // which interrupts too, by SIGPROF
		t.Fatal(err)
	}
	defer pprof.StopCPUProfile()
	client := open(t, play(t, forgetful), Config{FetchPoolAcquireTimeout: NoLimit, LoggerProvider: &recorder{}, Debug: true})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for range 2 { // keeps the processors busy, so that there is somebody to interrupt
		all.Add(1)
		go func() {
			defer all.Done()
			for ctx.Err() == nil {
				runtime.GC()
			}
		}()
	}
	var fetched atomic.Int64
	for worker := range 32 {
		all.Add(1)
		go func() {
			defer all.Done()
			for user := worker; ctx.Err() == nil; user += 32 {
				if err := deeper(8, func() error { return fetchOwn(context.Background(), client, user) }); err != nil {
					t.Error(err)
				}
				fetched.Add(1)
			}
		}()
	}
	all.Wait()
	t.Logf("%d fetches", fetched.Load())
}

// deeper makes the stack grow, and with the collector shrink.
func deeper(depth int, do func() error) error {
	var space [4096]byte
	if depth == 0 {
		return do()
	}
	err := deeper(depth-1, do)
	runtime.KeepAlive(&space)
	return err
}

func TestFetchesCanceledAtAnyMomentComeBackOnceAndCrossNoOther(t *testing.T) {
	client := open(t, play(t, `{"keep": "nothing", "answers": [{"delay_millis": 1}]}`), Config{FetchPoolAcquireTimeout: NoLimit})
	goroutines := runtime.NumGoroutine()
	var all sync.WaitGroup
	var fetched, ended atomic.Int64
	for user := range 2000 {
		all.Add(1)
		go func() {
			defer all.Done()
			ctx, cancel := context.WithCancel(context.Background())
			if user%2 == 0 {
				ctx, cancel = context.WithTimeout(context.Background(), time.Duration(user)*100*time.Microsecond)
			} else {
				time.AfterFunc(time.Duration(user)*100*time.Microsecond, cancel)
			}
			defer cancel()
			switch err := fetchOwn(ctx, client, user); {
			case err == nil:
				fetched.Add(1)
			case errors.Is(err, context.Canceled) && ctx.Err() == context.Canceled:
				ended.Add(1)
			case errors.Is(err, context.DeadlineExceeded) && isOver(ctx):
				ended.Add(1)
			default:
				t.Errorf("%v, while the context says %v", err, ctx.Err())
			}
		}()
	}
	all.Wait()
	if fetched.Load() == 0 || ended.Load() == 0 {
		t.Errorf("%d fetched, %d ended: not at any moment", fetched.Load(), ended.Load())
	}
	waitFor(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// isOver tells whether the context's deadline has passed. Its own timer may say so a little later.
func isOver(ctx context.Context) bool {
	deadline, bounded := ctx.Deadline()
	return bounded && !time.Now().Before(deadline)
}

func TestMorePendingFetchesThanAllowedAreRefusedAtOnce(t *testing.T) {
	service := play(t, stalled)
	client := open(t, service, Config{MaxPendingFetches: 1})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { _, err := client.FetchV2WithContext(nil, ctx); done <- err }()
	waitFor(t, "the fetch to be sent", func() bool { return service.seen(t).RequestsTotal == 1 })
	if err := failure(t, 0, func() (map[string]Variant, error) { return client.FetchV2(nil) }); err.Status != StatusQueueFull {
		t.Errorf("got %v", err)
	}
	cancel()
	isAll(t, <-done, context.Canceled)
}
