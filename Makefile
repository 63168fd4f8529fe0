# Cubby. `make help` lists the targets.
#
# Any Go from 1.21 on will do: it fetches the toolchain that go.mod asks for.
export GOTOOLCHAIN := auto
export CGO_ENABLED := 0
export GO       ?= go

.DEFAULT_GOAL := help
.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: go-version
go-version:
	@command -v $(GO) >/dev/null || { echo "Go was not found: install Go 1.21 or newer (https://go.dev/dl, or apt-get install golang)"; exit 1; }
	@v=$$(GOTOOLCHAIN=local $(GO) version | sed -E 's/.* go([0-9]+)\.([0-9]+).*/\1 \2/'); set -- $$v; \
	if [ "$$1" -lt 1 ] || [ "$$1" -eq 1 -a "$$2" -lt 21 ]; then \
	  echo "Go $$1.$$2 is too old: install Go 1.21 or newer, which then fetches the toolchain that go.mod names"; exit 1; fi

.PHONY: build
build: go-version ## Build bin/cubby, which has everything inside, and its parts beside it
	@scripts/build bin

.PHONY: demo
demo: build ## Build, then analyse a real CSV in a sandbox: a table and a chart
	rm -rf demo-out
	./bin/cubby run -f examples/weather/seattle-weather.csv -o demo-out examples/weather/analysis.py

.PHONY: demo-agent
demo-agent: build ## Watch a scripted model write code, fail, repair it, draw a chart and answer: no key, no network
	scripts/demo-agent

.PHONY: test
test: go-version ## Run every test; as root also install what they need, and run what depends on the user as a plain user, too
	@scripts/test

.PHONY: test-quick
test-quick: go-version ## Run the tests of what needs no sandbox, in less than a minute
	@scripts/test quick

.PHONY: test-go
test-go: go-version ## Run the Go tests as the user you are
	@for module in $$($(GO) list -m -f '{{.Dir}}'); do (cd $$module && $(GO) test ./...) || exit 1; done

# The other one of the two newest releases; the rest is tested with cmd's.
LIBRARY_GO ?= go1.27.4

.PHONY: test-library
test-library: go-version ## Test the library with another Go release: what needs no sandbox
	@scripts/test-library $(LIBRARY_GO)

.PHONY: race
race: go-version ## Run the tests of what needs no sandbox under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race . ./cmd/internal/channel ./cmd/internal/guest/... ./internal/cgroup ./cmd/internal/template ./cmd/internal/doctor ./cmd/internal/store ./cmd/internal/ownerconfig ./cmd/internal/host ./cmd/internal/secret ./cmd/internal/server ./codeexec ./codeexec/artifact ./codeexec/internal/workdir ./codeexec/internal/session ./codeexec/internal/posixws

.PHONY: bench
bench: build ## Measure runs against a bare interpreter, and the server against a bare connection
	$(GO) run ./cmd/internal/bench -cubby bin/cubby
	$(GO) run ./cmd/internal/bench -serve -cubby bin/cubby
	$(GO) run ./cmd/internal/bench -net -cubby bin/cubby
	$(GO) run ./cmd/internal/bench -life -cubby bin/cubby

.PHONY: soak
soak: build ## Repeat the sandbox tests for half an hour, then a thousand lives of sandboxes, and fuzz each parser of hostile input
	scripts/soak

.PHONY: lint
lint: go-version ## Check formatting, Go, Python, JavaScript, shell and module files
	@scripts/lint

.PHONY: tidy
tidy: go-version ## Run go mod tidy in every module
	@scripts/tidy

.PHONY: generate
generate: go-version ## Regenerate seccomp programs and protocol code (after a change of gVisor or of a .proto)
	$(GO) generate ./...

# The library's packages, in its modules. The adapters are left out: they have no
# code for one platform, and the SDKs compile for minutes.
LIBRARY := . ./embedded ./codeexec/... ./agent/... ./codeexec/container/... ./codeexec/fromenv/... ./agent/parsers/... ./agent/transcript/...

.PHONY: cross
cross: go-version ## Compile what each platform gets: everything on Linux, cubby without an engine elsewhere
	GOOS=linux GOARCH=arm64 $(GO) build -trimpath ./... $(LIBRARY) ./cmd/...
	out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && GOOS=linux GOARCH=arm64 scripts/build "$$out"
	GOOS=darwin GOARCH=arm64 $(GO) build -trimpath $(LIBRARY) ./cmd/cubby
	GOOS=windows GOARCH=amd64 $(GO) build -trimpath $(LIBRARY) ./cmd/cubby

.PHONY: release
release: go-version ## Make packages, archives, bills of materials and checksums of the commit HEAD in dist/
	@scripts/release dist

.PHONY: release-twice
release-twice: go-version ## Make the release twice, elsewhere the second time, and compare the bytes
	@scripts/release-twice

.PHONY: release-check
release-check: go-version ## Try a release of VERSION before it is tagged: go install, go get, and what they give
	@scripts/release-check $(VERSION)

.PHONY: release-raise
release-raise: go-version ## Give all modules VERSION, as the commit of a release does
	@scripts/release-raise $(VERSION)

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin dist demo-out demo-agent-out cmd/internal/guestbin/cubby-* cmd/internal/enginebin/cubby-engine.* cmd/internal/enginebin/.lock
