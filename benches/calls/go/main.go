// As call.c, in Go.
//
//	call URL FETCHES LOOKUPS USERS
package main

// #include <stdlib.h>
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	experiment "github.com/amplitude/libexperiment/bindings/go"
)

// Where the compiler cannot see that nobody looks.
var (
	value string
	made  *experiment.User
)

func newUser() *experiment.User {
	return &experiment.User{UserId: "user-1234", DeviceId: "device-5678"}
}

func main() {
	client := must(experiment.NewClient("key", &experiment.Config{ServerUrl: os.Args[1]}))
	user := newUser()
	variants := must(client.FetchV2(user))
	fetches := func(count int) {
		for range count {
			must(client.FetchV2(user))
		}
	}
	lookups := func(count int) {
		for range count {
			value = variants["flag-one"].Value
		}
	}
	users := func(count int) {
		for range count {
			made = newUser()
		}
	}
	fetches(20)
	measure("fetch", fetches, must(strconv.Atoi(os.Args[2])), 1)
	measure("lookup", lookups, must(strconv.Atoi(os.Args[3])), 1000)
	measure("user", users, must(strconv.Atoi(os.Args[4])), 1000)
	C.exit(0) // as C does, so that who counts its allocations can tell
}

func measure(what string, calls func(int), batches, batch int) {
	took := make([]float64, batches)
	objects, processor := mallocs(), processorTime()
	for i := range took {
		began := time.Now()
		calls(batch)
		took[i] = float64(time.Since(began)) / float64(batch)
	}
	processor = processorTime() - processor
	objects = mallocs() - objects
	slices.Sort(took)
	count := float64(batches * batch)
	fmt.Println(what, took[batches/2], float64(processor)/count, float64(objects)/count)
}

func mallocs() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.Mallocs
}

func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func must[T any](result T, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}
