package eventloop

import (
	"sync"
	"testing"
	"time"
)

// TestTasksRunOnceAndInOrder puts tasks in from many goroutines while the loop is
// stopped: what was let in runs, once, in the order of who put it in; what was
// not never does.
func TestTasksRunOnceAndInOrder(t *testing.T) {
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Run() }()

	const putters, each = 8, 2000
	var let [putters]int // tasks let in
	var ran [putters]int // loop-owned
	var all sync.WaitGroup
	for p := range putters {
		all.Go(func() {
			for i := range each {
				if l.Execute(func() {
					if ran[p] != i {
						t.Errorf("task %d of %d ran when %d had", i, p, ran[p])
					}
					ran[p]++
				}) != nil {
					return
				}
				let[p]++
			}
		})
		if p == putters/2 {
			l.Stop()
		}
	}
	all.Wait()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if let != ran {
		t.Errorf("let in %v, ran %v", let, ran)
	}
}

// TestIdleLoopIsWoken: a loop that has had nothing but tasks for a while sleeps in another
// way. Tasks and connections wake it from that as well, in any order, and it can be
// stopped.
func TestIdleLoopIsWoken(t *testing.T) {
	l, u := startLoop(t), newUser()
	if l.poller.raw == nil {
		t.Fatal("the runtime does not watch the epoll instance")
	}
	peer := l.pair(t, u)
	for range 200 {
		l.untilIdle(t)
		if _, err := peer.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		u.want(t, "x")
	}
	_ = peer.Close()
	_ = u.end(t)
}

// untilIdle gives the loop tasks until it takes itself for idle. How many that needs is
// not known: a loop that finds a task before it has fallen asleep was not woken for it.
func (l *Loop) untilIdle(t *testing.T) {
	t.Helper()
	for began, idle := time.Now(), false; !idle; {
		if time.Since(began) > patience {
			t.Fatal("nothing but tasks is no idleness")
		}
		l.on(t, func() { idle = l.quiet >= quietAfter })
	}
}
