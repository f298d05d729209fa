package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"warmpath/controlplane/config"
	"warmpath/scaler/actuate"
	engineprocess "warmpath/scaler/actuate/process"
)

const (
	waveEvery     = 90 * time.Second // from one crest of the demo's traffic to the next
	waveCrest     = 40               // clients that ask at once
	waveTick      = time.Second
	demoEndWithin = 15 * time.Second
)

// scaleText configures a scaler that acts in seconds. Its engines are slow on purpose:
// a few clients fill one.
const scaleText = `state_dir: %q
scaler:
  enabled: true
  fleet: %s
  interval: 1s
  min: 1
  max: %d
  target_ttft: 1s
  stabilise_down: 10s
  cool_down: 5s
  recovery: 10s
  start_up: 3s
  replace_down: 5s
  offers:
    - name: local
      provider: process
      quota: %d
      process: {command: [%q, --port, "{port}", --model, %s, --prefill-tps, "3000", --decode-base-ms, "15", --max-num-seqs, "8"], first_port: %d, last_port: %d, stop_after: 5s}
`

// scaling is what a demo with a scaler has beside the router.
type scaling struct {
	folder string // of the journal and the engines' marks
	engine *engineprocess.Actuator
	text   string // of the configuration
}

// prepareScaling writes the part of the configuration, and finds the engines' program.
func (d *demo) prepareScaling() (*scaling, error) {
	sim, err := besideSelf("enginesim")
	if err != nil {
		return nil, err
	}
	s := &scaling{}
	if s.folder, err = os.MkdirTemp("", "warmpath-demo-"); err != nil {
		return nil, fmt.Errorf("make a folder for the scaler's journal: %w", err)
	}
	fleet := fmt.Sprintf("demo-%d", os.Getpid())
	first := freePorts(demoEngines, 2*d.nodes)
	s.text = fmt.Sprintf(scaleText, s.folder, fleet, d.nodes, 2*d.nodes, sim, demoModel, first, first+2*d.nodes-1)
	s.engine, err = engineprocess.New(engineprocess.Options{
		Command: []string{sim}, Fleet: fleet + "-local", FirstPort: first, LastPort: first + 2*d.nodes - 1,
		Environ: config.EnvironOfNodes(), StopAfter: 2 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		_ = os.RemoveAll(s.folder)
		return nil, err
	}
	return s, nil
}

// besideSelf is the path of a program that lies beside this one.
func besideSelf(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find own executable: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find %s beside this program: %w; run `make build`", name, err)
	}
	return path, nil
}

// end ends all engines, which would outlive the router.
func (s *scaling) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), demoEndWithin)
	defer cancel()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		left := 0
		running, err := s.engine.List(ctx)
		for _, i := range running {
			if i.Phase == actuate.Ended {
				continue
			}
			left++
			if i.Phase != actuate.Ending {
				err = errors.Join(err, s.engine.Delete(ctx, i))
			}
		}
		if err == nil && left == 0 {
			return errors.Join(s.engine.Close(), os.RemoveAll(s.folder))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("end the engines: %d run yet: %w", left, errors.Join(err, ctx.Err()))
		case <-look.C:
		}
	}
}

// showScaling says where everything is, and prints each decision of the scaler until
// ctx ends.
func (d *demo) showScaling(ctx context.Context, asking *atomic.Int64) {
	fmt.Fprintf(d.out, `
warmpath %s: a scaler between 1 and %d simulated engines on this host

  clients     http://%s   (OpenAI API; model "%s")
  status page http://%s
  scaler      %s scaler --admin %s

Clients come and go, from 1 to %d and back every %.0f s. What the scaler does about it:

`, version, d.nodes, d.router.data.Addr(), demoModel, d.router.adminAddr(), os.Args[0], d.router.adminAddr(), waveCrest, waveEvery.Seconds())
	look := time.NewTicker(waveTick)
	defer look.Stop()
	var shown time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		status, _ := d.router.control.Scaler()
		if status == nil {
			continue
		}
		for i := range status.Decided {
			if n := &status.Decided[i]; n.At.After(shown) {
				shown = n.At
				fmt.Fprintf(d.out, "%s  %2d clients  %-4s %s\n", n.At.Format("15:04:05"), asking.Load(), n.Action, n.Words)
			}
		}
	}
}

// waves has clients ask, more and fewer of them, until ctx ends. It returns how many
// answers were whole and how many were not.
func (d *demo) waves(ctx context.Context, asking *atomic.Int64) (whole, failed int64) {
	var wait sync.WaitGroup
	var good, bad atomic.Int64
	url, began := "http://"+d.router.data.Addr().String(), time.Now()
	tick := time.NewTicker(waveTick / 4)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			wait.Wait()
			return good.Load(), bad.Load()
		case <-tick.C:
		}
		phase := 2 * math.Pi * time.Since(began).Seconds() / waveEvery.Seconds()
		want := 1 + int64(math.Round((waveCrest-1)*(1-math.Cos(phase))/2))
		for asking.Load() < want {
			asking.Add(1)
			wait.Go(func() {
				defer asking.Add(-1)
				text := fmt.Sprintf("Client %d: ", n) + strings.Repeat("tell me more about it, ", 40)
				_, _, _, _, err := ask(ctx, url, []message{{"user", text}})
				switch {
				case err == nil:
					good.Add(1)
				case ctx.Err() == nil:
					bad.Add(1)
					fmt.Fprintln(d.out, "traffic:", err)
				}
			})
		}
	}
}

// runScaled is run with a scaler in place of a fixed fleet.
func (d *demo) runScaled(ctx context.Context) error {
	s, err := d.prepareScaling()
	if err != nil {
		return err
	}
	defer func() {
		if err := s.end(); err != nil {
			fmt.Fprintln(d.errs, "warmpath:", err)
		}
		fmt.Fprintln(d.out, "ended: router, engines and traffic are gone")
	}()
	d.scaled = s.text
	if err := d.startRouter(ctx); err != nil {
		return err
	}
	defer d.stopRouter()
	var asking atomic.Int64
	answers := make(chan [2]int64, 1)
	go func() {
		whole, failed := d.waves(ctx, &asking)
		answers <- [2]int64{whole, failed}
	}()
	d.showScaling(ctx, &asking)
	n := <-answers
	fmt.Fprintf(d.out, "\n%d answers were whole, %d were not\n", n[0], n[1])
	return nil
}
