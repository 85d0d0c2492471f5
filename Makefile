# heddle: build, check and try it. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := build

CACHE := $(CURDIR)/.cache
TOOLBIN := $(CACHE)/bin
VERSION ?= 0.1.0-$(shell git describe --always --dirty 2>/dev/null || echo dev)
GO ?= go

# Pinned tools; they are installed into .cache/bin when a target needs them.
BUF_VERSION := v1.75.0
PROTOC_GEN_GO_VERSION := v1.36.12
PROTOC_GEN_GO_GRPC_VERSION := v1.6.2
GRPC_GATEWAY_VERSION := v2.33.0
GOLANGCI_VERSION := v2.15.0

GUEST := sandbox/guestbin/heddle-guest
GUEST_TAGS := runc_nocriu netgo osusergo
GO_SOURCES := $(shell find proto sandbox executor controlplane gateway cmd -name '*.go' -not -name '*_test.go' 2>/dev/null) go.mod go.sum
GUEST_SOURCES := $(shell find sandbox cmd/heddle-guest \( -name '*.go' -o -name '*.c' \) -not -name '*_test.go' 2>/dev/null) go.mod go.sum

# The conformance kit and its profile; see docs/clients.md.
WIRECHECK ?= ../shared/wirecheck
WIRE_AREAS ?= handshake turn commands approvals filechange command_exec persistence thread tools review catalog config fs search ws mcp
WIRE_SCHEMA := $(CACHE)/clients/tui/schema/codex_app_server_protocol.schemas.json
TEST_FLAGS ?=
PACKAGES ?=

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: bin/heddle ## Build bin/heddle with its sandbox helper inside

# What a build needs of the machine, told in one line each when it is not there.
.PHONY: prerequisites
prerequisites:
	@command -v $(GO) >/dev/null || { echo "make: Go is missing; install Go 1.26 or later from https://go.dev/dl/ and put its bin folder into PATH" >&2; exit 1; }
	@v=$$($(GO) env GOVERSION 2>&1); [[ $$v =~ ^go1\.(2[6-9]|[3-9][0-9]) ]] || { \
		echo "make: Go 1.26 or later is needed, and $(GO) says: $$v" >&2; echo "make: install it from https://go.dev/dl/ and put its bin folder into PATH before others" >&2; exit 1; }
	@command -v gcc >/dev/null || { echo "make: gcc is missing; on Debian or Ubuntu: apt-get install gcc libc6-dev" >&2; exit 1; }
	@[[ $$(gcc -print-file-name=libc.a) == /* ]] || { echo "make: the static C library is missing; on Debian or Ubuntu: apt-get install libc6-dev, on Fedora: dnf install glibc-static" >&2; exit 1; }

bin/heddle: $(GUEST) $(GO_SOURCES) | prerequisites
	CGO_ENABLED=0 $(GO) build -tags embed_guest -ldflags '-s -w -X main.version=$(VERSION)' -o $@ ./cmd/heddle

$(GUEST): $(GUEST_SOURCES) | prerequisites
	@mkdir -p $(@D)
	CGO_ENABLED=1 $(GO) build -tags '$(GUEST_TAGS)' -ldflags '-s -w -extldflags -static' -o $@ ./cmd/heddle-guest

.PHONY: demo
demo: build ## Run the main job: a scripted turn in a sandbox, checked from outside
	bin/heddle demo

.PHONY: test
test: build ## Run the tests, the sandbox included
	HEDDLE_GUEST=$(CURDIR)/$(GUEST) CGO_ENABLED=0 $(GO) test -timeout 18m $(TEST_FLAGS) $(or $(PACKAGES),./...)

.PHONY: test-race
test-race: $(GUEST) ## Run the tests under the race detector
	HEDDLE_GUEST=$(CURDIR)/$(GUEST) $(GO) test -race $(TEST_FLAGS) $(or $(PACKAGES),./proto/... ./controlplane/... ./executor/... ./gateway/...)

.PHONY: test-sandbox
test-sandbox: build ## Run the attack table at every level; no row may be skipped that this host can enforce
	REQUIRE_SANDBOX=1 HEDDLE_GUEST=$(CURDIR)/$(GUEST) CGO_ENABLED=0 $(GO) test -count=1 -v $(TEST_FLAGS) ./sandbox/...

.PHONY: test-wire
test-wire: test-wire-kit test-wire-schema ## Run the protocol conformance kit (WIRE_AREAS picks folders), and validate the messages of the end-to-end tests

.PHONY: test-wire-kit
test-wire-kit: build
	@test -f $(WIRECHECK)/wirecheck.py || { echo "make: no conformance kit at $(WIRECHECK); set WIRECHECK=DIR" >&2; exit 1; }
	python3 $(WIRECHECK)/wirecheck.py --target '$(CURDIR)/bin/heddle app-server' --profile $(WIRECHECK)/targets/heddle.json $(WIRE_FLAGS) $(WIRE_AREAS)

.PHONY: test-wire-schema
test-wire-schema: wire-schema
	HEDDLE_WIRE_SCHEMA=$(WIRE_SCHEMA) $(GO) test -count=1 $(TEST_FLAGS) ./cmd/heddle/internal/e2e

# The reference writes the schemas itself, so this needs node and npm.
.PHONY: wire-schema
wire-schema: build
	HEDDLE_BIN=$(CURDIR)/bin/heddle $(GO) test -count=1 -tags clients -run '^TestClientReferenceSchema$$' ./cmd/heddle/internal/e2e

.PHONY: test-clients
test-clients: build ## Run unmodified clients from npm and PyPI against bin/heddle (needs node, npm, python3 and tmux)
	HEDDLE_BIN=$(CURDIR)/bin/heddle $(GO) test -count=1 -tags clients -parallel 2 -timeout 15m -v -run '^TestClient' ./cmd/heddle/internal/e2e

.PHONY: test-robustness
test-robustness: $(GUEST) ## Break everything at random and check what was seen (HEDDLE_ROBUST_FAULTS, HEDDLE_ROBUST_SEED)
	CGO_ENABLED=0 $(GO) build -tags embed_guest,failpoint -ldflags '-s -w -X main.version=$(VERSION)' -o $(CACHE)/heddle-failpoint ./cmd/heddle
	HEDDLE_BIN=$(CACHE)/heddle-failpoint $(GO) test -count=1 -tags robust -timeout 2h -v -run TestRobustness ./cmd/heddle/internal/robust

.PHONY: bench
bench: build ## Measure a turn of 20 sandboxed commands and single sandboxes, beside bare ones
	$(GO) run ./cmd/internal/turnbench -heddle bin/heddle
	$(GO) run ./cmd/internal/sandboxbench -guest $(GUEST)
	$(GO) run ./cmd/internal/historybench -heddle bin/heddle

.PHONY: generate
generate: tools-proto ## Regenerate the Go code of proto/
	PATH=$(TOOLBIN):$$PATH buf generate --template proto/buf.gen.yaml --path proto/heddle

.PHONY: check-generated
check-generated: generate ## Fail when the generated code is not what proto/ says
	@git diff --exit-code -- proto || { echo "make: generated code differs; run 'make generate' and commit" >&2; exit 1; }

.PHONY: lint
lint: tools-lint tools-buf ## Lint Go and proto
	$(TOOLBIN)/buf lint
	$(TOOLBIN)/buf format --diff --exit-code --path proto/heddle
	$(TOOLBIN)/golangci-lint run ./...

.PHONY: breaking
breaking: tools-buf ## Fail on a breaking change of proto/ against the main branch
	$(TOOLBIN)/buf breaking --against '.git#branch=main'

.PHONY: check
check: ## Run the static checks that need no tools: vet, gofmt, import boundaries
	@test -z "$$(gofmt -l proto sandbox executor controlplane gateway cmd)" || { gofmt -l proto sandbox executor controlplane gateway cmd; exit 1; }
	$(GO) vet ./...
	$(GO) test ./cmd/internal/archtest

.PHONY: fuzz
fuzz: ## Fuzz every target, an hour in all (FUZZTIME=10s: so long each)
	.ci/fuzz $(FUZZTIME)

.PHONY: tools-buf
tools-buf: $(TOOLBIN)/buf-$(BUF_VERSION)

.PHONY: tools-proto
tools-proto: tools-buf $(TOOLBIN)/protoc-gen-go-$(PROTOC_GEN_GO_VERSION) $(TOOLBIN)/protoc-gen-go-grpc-$(PROTOC_GEN_GO_GRPC_VERSION) $(TOOLBIN)/protoc-gen-grpc-gateway-$(GRPC_GATEWAY_VERSION)

.PHONY: tools-lint
tools-lint: $(TOOLBIN)/golangci-lint-$(GOLANGCI_VERSION)

# $(1) package, $(2) version; the stamp file names the version.
define install-tool
	GOBIN=$(TOOLBIN) $(GO) install $(1)@$(2)
	@touch $@
endef

$(TOOLBIN)/buf-$(BUF_VERSION):
	$(call install-tool,github.com/bufbuild/buf/cmd/buf,$(BUF_VERSION))

$(TOOLBIN)/protoc-gen-go-$(PROTOC_GEN_GO_VERSION):
	$(call install-tool,google.golang.org/protobuf/cmd/protoc-gen-go,$(PROTOC_GEN_GO_VERSION))

$(TOOLBIN)/protoc-gen-go-grpc-$(PROTOC_GEN_GO_GRPC_VERSION):
	$(call install-tool,google.golang.org/grpc/cmd/protoc-gen-go-grpc,$(PROTOC_GEN_GO_GRPC_VERSION))

$(TOOLBIN)/protoc-gen-grpc-gateway-$(GRPC_GATEWAY_VERSION):
	$(call install-tool,github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway,$(GRPC_GATEWAY_VERSION))

$(TOOLBIN)/golangci-lint-$(GOLANGCI_VERSION):
	$(call install-tool,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,$(GOLANGCI_VERSION))

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin $(GUEST) $(CACHE)
