// As load.py, in Go, each call on a goroutine: with this project's binding, or with `-tags sdk` with the
// vendor's SDK.
//
//	load URL RATE SECONDS [SETTING=VALUE ...]
//
// A RATE such as `64x` is so many goroutines that call again and again, `64x5` so many that call so many
// times each.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	rate, seconds := os.Args[2], number(os.Args[3])
	settings := map[string]int{}
	for _, setting := range os.Args[4:] {
		name, value, _ := strings.Cut(setting, "=")
		settings[name] = int(number(value))
	}
	fetch := warm(os.Args[1], settings)
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return // whoever started it is gone
	}
	callers, turns, closed := strings.Cut(rate, "x")
	switch {
	case !closed:
		load(number(rate), seconds, fetch)
	case turns == "":
		againAndAgain(int(number(callers)), seconds, fetch)
	default:
		inTurns(int(number(callers)), int(number(turns)), fetch)
	}
}

func warm(url string, settings map[string]int) func() (int, error) {
	if millis := settings["only_sleep"]; millis > 0 {
		return func() (int, error) {
			time.Sleep(time.Duration(millis) * time.Millisecond)
			return 1, nil
		}
	}
	fetch := open(url, settings)
	for range 20 {
		_, _ = fetch()
	}
	return fetch
}

func load(rate, seconds float64, fetch func() (int, error)) {
	begin := time.Now()
	var calls sync.WaitGroup
	for i := range int(rate * seconds) {
		time.Sleep(time.Until(begin.Add(time.Duration(float64(i) / rate * float64(time.Second)))))
		calls.Add(1)
		go func() {
			defer calls.Done()
			call(i, fetch)
		}()
	}
	calls.Wait()
}

// call prints how long a fetch took, and what came of it: its number of variants, or an error.
func call(i int, fetch func() (int, error)) {
	start := time.Now()
	variants, err := fetch()
	elapsed := time.Since(start)
	outcome := "ok"
	if err != nil {
		outcome = "error"
	} else if variants == 0 {
		outcome = "empty"
	}
	fmt.Printf("{\"call\":%d,\"start\":%.3f,\"elapsed\":%.3f,\"outcome\":%q}\n",
		i, float64(start.UnixMicro())/1e3, elapsed.Seconds()*1e3, outcome)
}

func inTurns(callers, turns int, fetch func() (int, error)) {
	var running sync.WaitGroup
	for caller := range callers {
		running.Add(1)
		go func() {
			defer running.Done()
			for turn := range turns {
				call(caller*turns+turn, fetch)
			}
		}()
	}
	running.Wait()
}

func againAndAgain(callers int, seconds float64, fetch func() (int, error)) {
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var calls, ok atomic.Int64
	var running sync.WaitGroup
	for range callers {
		running.Add(1)
		go func() {
			defer running.Done()
			for time.Now().Before(end) {
				calls.Add(1)
				if variants, err := fetch(); err == nil && variants > 0 {
					ok.Add(1)
				}
			}
		}()
	}
	running.Wait()
	fmt.Printf("{\"calls\":%d,\"ok\":%d}\n", calls.Load(), ok.Load())
}

func number(text string) float64 {
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return number
}
