# `make` lists the targets. Everything builds into bin/ and .cache/.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME ?= 20s
BENCH    ?= .
PROGRAMS := warmpath enginesim warmbench
# The race detector needs cgo; without a C compiler the tests run without it.
RACE     := $(if $(shell command -v $${CC:-gcc} 2>/dev/null),-race,)

RESULTS  ?= bench/results/proxy.jsonl
RUNS     ?= 5
DURATION ?= 3s

.PHONY: help build build-hf run test lint generate generated fmt race purego test-hf allocs fuzz bench bench-smoke bench-proxy bench-peers profile kernel-truth kernel-cost bench-index bench-tokens bench-storm bench-fleet bench-guard test-kernels dead-trials scale-cycles scale-laws soak e2e e2e-vllm e2e-exact setup models libtokenizers clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | awk -F'\t' '{printf "  %-13s %s\n", $$1, $$2}'

build: ## build warmpath, enginesim and warmbench, static, into bin/
	@mkdir -p bin
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ $(PROGRAMS:%=./cmd/%)

build-hf: libtokenizers ## the same programs with the Hugging Face library linked in (needs cargo and g++ once)
	@mkdir -p bin
	CGO_ENABLED=1 go build -tags hf -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ $(PROGRAMS:%=./cmd/%)

run: ## build, then show the router at work on simulated engines (with a real model's tokens where the Hugging Face library can be had)
	@scripts/models.sh qwen3 || true; scripts/setup.sh --python
	@if scripts/libtokenizers.sh; then $(MAKE) build-hf; else $(MAKE) build; fi
	bin/warmpath demo

test: setup lint generated race purego test-hf allocs bench-smoke ## everything that must pass: lint, tests, race detector, real vocabularies, fuzz seeds, benchmarks once, end to end
	@echo 'all tests passed'

lint: ## go vet, staticcheck, gofumpt, and the rules of the tree
	go vet ./...
	go tool staticcheck ./...
	@unformatted=$$(go tool gofumpt -l . ); [ -z "$$unformatted" ] || { echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; }
	go test -count=1 .

generate: ## make the BPF objects and their Go anew (needs clang-19, llvm-19, libbpf-dev)
	go generate ./bpf

generated: ## prove that the committed BPF objects are those of their sources, where clang-19 is there
	@scripts/generated.sh

fmt: ## format all Go code
	go tool gofumpt -w .

race: ## all tests with fuzz seeds, under the race detector where there is a C compiler
	go test $(RACE) -timeout 15m ./...

test-hf: ## ids against the Hugging Face library, for every model that make models fetched, alone and end to end; skipped where the library cannot be built
	@packages=$$(grep -rlE --include='*_test.go' '^//go:build hf' . | xargs -r -n1 dirname | sort -u | grep -vx ./cmd/warmpath); \
	if scripts/libtokenizers.sh; then \
		go vet -tags hf $$packages ./cmd/warmpath && go tool staticcheck -tags hf $$packages ./cmd/warmpath && \
		go test -tags hf -timeout 10m -v $$packages | grep -vE '^(=== | *--- PASS)' && \
		go test $(RACE) -tags hf -run Concurrent $$packages && \
		go test -tags hf -timeout 5m -v -run RealModel ./cmd/warmpath | grep -vE '^(=== | *--- PASS)'; \
	fi

purego: ## packages that have assembly, without it
	go test -tags purego $$(find . -name '*.s' -not -path './.cache/*' | xargs -n1 dirname | sort -u)

allocs: ## what the race detector hides or cannot bear: allocations, the largest bounds
	@packages=$$(grep -rlE --include='*_test.go' "AllocsPerRun|raceEnabled" . | xargs -r -n1 dirname | sort -u); \
	[ -z "$$packages" ] || go test -run 'Alloc|Bound|Hostile|Measure' $$packages

fuzz: ## each fuzz target for FUZZTIME (20s)
	@grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sed -E 's/^(.*)\/[^/]*:func (.*)$$/\1 \2/' | sort | \
	while read -r folder target; do \
		echo "$$folder $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$folder" </dev/null; \
	done

bench: ## Go benchmarks that match BENCH (all)
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

bench-smoke: ## each Go benchmark once, so that none rots
	@packages=$$(grep -rlE --include='*_test.go' '^func Benchmark' . | xargs -r -n1 dirname | sort -u); \
	[ -z "$$packages" ] || output=$$(go test -run '^$$' -bench . -benchtime 1x $$packages) || { echo "$$output"; exit 1; }; \
	echo 'each benchmark ran once'

bench-proxy: build ## warmpath, nginx, HAProxy and no proxy side by side (needs two quiet cores, about 10 minutes); RUNS, DURATION, RESULTS
	@mkdir -p $(dir $(RESULTS)); rm -f $(RESULTS)
	bin/warmbench proxy --size 600    --concurrency 64 --runs $(RUNS) --duration $(DURATION) --output $(RESULTS) >/dev/null
	bin/warmbench proxy --size 4096   --concurrency 64 --runs $(RUNS) --duration $(DURATION) --output $(RESULTS) >/dev/null
	bin/warmbench proxy --size 65536  --concurrency 64 --runs $(RUNS) --duration $(DURATION) --output $(RESULTS) >/dev/null
	bin/warmbench proxy --size 225280 --concurrency 16 --runs $(RUNS) --duration $(DURATION) --output $(RESULTS) >/dev/null
	bin/warmbench proxy --size 4096   --one-core       --runs $(RUNS) --duration $(DURATION) --output $(RESULTS) >/dev/null

bench-peers: RUNS = 3
bench-peers: DURATION = 2s
bench-peers: build ## every proxy that can be had beside warmpath: bodies, streams, latency; table and plots (needs two quiet cores, about 25 minutes); RUNS, DURATION
	scripts/peers.sh
	RUNS=$(RUNS) DURATION=$(DURATION) scripts/peers.sh --measure

profile: build ## where the router's time goes, and nginx's, by size of the body (needs perf, nginx and two quiet cores, 2 minutes)
	scripts/profile.sh | tee bench/results/profile.txt

kernel-truth: build ## whose time it is: nodes' first events by the kernel and by user space, beside programs that burn the core (root, five minutes)
	scripts/kernel_truth.sh | tee bench/results/kernel-truth.txt

kernel-cost: build ## what the kernel's programs cost: the same loads with and without them, and nanoseconds a run (root, 6 minutes)
	scripts/kernel_cost.sh | tee bench/results/kernel-cost.txt

bench-index: build ## the prefix index: memory, stores, matches; then beside llm-d's (compiles for minutes the first time)
	bin/warmbench index | tee bench/results/index.jsonl
	cd bench/peer/llmdkv && go test -count=1 -timeout 30m -v .

bench-tokens: ## tokenizer and prompts, beside Hugging Face's library where it can be built (needs make models and a quiet core, 2 minutes); RUNS
	@if scripts/libtokenizers.sh; then $(MAKE) build-hf; else $(MAKE) build; fi
	bin/warmbench tokens --runs $(RUNS) | tee bench/results/tokens.jsonl

test-kernels: ## the kernel plane under Debian's kernels in QEMU and on this host; table of what loads where (root, 6 minutes, 100 MB once); KERNELS
	scripts/test_kernels.sh | tee bench/results/kernels.md

soak: build ## a million requests before nodes that fail, clients that leave, reloads and drains; every byte checked (10 minutes, two cores)
	bin/warmbench soak --restart-every 1m 2>&1 | tee bench/results/soak.txt

bench-storm: build ## routing while 100 nodes restart and report all they hold (needs two quiet cores, 1 minute); RUNS
	bin/warmbench storm --runs $(RUNS) | tee bench/results/storm.jsonl

bench-fleet: RUNS = 3
bench-fleet: build ## what 1,000 nodes cost: control plane, snapshots, decisions, beside 10 nodes and without scrapes (needs two quiet cores, 20 minutes); RUNS
	{ bin/warmbench fleet --runs $(RUNS); bin/warmbench fleet --runs $(RUNS) --case large --whole; } 2>&1 | tee bench/results/thousand-nodes.txt

bench-guard: ## the XDP guard: nanoseconds a packet, then a SYN flood with and without it (needs root, ip, two quiet cores, 1 minute)
	{ echo 'kernel-ns/op: what a run of the program takes, by BPF_PROG_TEST_RUN; an empty program is what its loop costs'; \
	  go test -run '^$$' -bench Guard -benchtime 2000000x -count 3 ./bpf; \
	  go test -count=1 -timeout 20m -run TestGuardFlood -v ./cmd/warmpath -e2e.flood | grep -v "{" ; } | tee bench/results/guard.txt

dead-trials: TRIALS = 100
dead-trials: ## dead hosts against hung engines, simulated ones and a real vLLM, and nodes that are neither (root, ip, two quiet cores, half an hour; downloads and memory as e2e-vllm); TRIALS
	{ echo "$$(uname -sr), $$(nproc) CPUs, warmpath $(VERSION)"; echo; \
	  go test -v -count=1 -timeout 60m -run '^TestTrials$$' ./cmd/warmpath -e2e.trials=$(TRIALS); \
	  go test -v -count=1 -timeout 60m -run '^TestTrialsVLLM$$' ./cmd/warmpath -e2e.trials.vllm=$(TRIALS); \
	  go test -v -count=1 -timeout 60m -run '^TestNeverDead$$' ./cmd/warmpath -e2e.never=5m; \
	} 2>&1 | grep -v '^=== ' | tee bench/results/dead-trials.txt

scale-cycles: CYCLES = 10
scale-cycles: ## a scaler with real engines: cycles of growing and shrinking, engines and router killed; no request fails (10 minutes); CYCLES
	{ echo "$$(uname -sr), $$(nproc) CPUs, warmpath $(VERSION)"; echo; \
	  go test -v -count=1 -timeout 60m -run '^TestScale' ./cmd/warmpath -e2e.cycles=$(CYCLES); \
	} 2>&1 | grep -E '^---|e2e_scale|CPUs|^(ok|FAIL)' | tee bench/results/scale-cycles.txt

scale-laws: build ## scaling laws in virtual time: this one, HPA- and KEDA-like ones tuned to its target, and an oracle (an hour of one core); CASES, TRACES
	scripts/scale_laws.sh $(CASES)

e2e: ## the real binaries: faults, reload, drain, the OpenAI clients (part of race)
	go test -count=1 ./cmd/warmpath

e2e-vllm: build ## the router before two real vLLM engines on the CPU (downloads about 1 GB once, needs 6 GB of memory)
	scripts/e2e_vllm.sh

e2e-exact: build ## exactness before two real vLLM engines: counts, cached tokens, resets, kills, cut events (as e2e-vllm; about 10 minutes)
	scripts/e2e_exact.sh

setup: ## install what tests can use, where possible, and say what is missing
	@scripts/setup.sh

models: ## fetch the tokenizers of ten real models into .cache/models (200 MB of downloads, half a minute)
	@scripts/models.sh

libtokenizers: ## build the Hugging Face library into .cache/libtokenizers (needs cargo, gcc and g++; about 2 minutes once)
	@scripts/libtokenizers.sh

clean: ## remove what was built; .cache stays
	rm -rf bin
