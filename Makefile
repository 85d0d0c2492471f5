# heddle: build, check and try it. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := build

CACHE := $(CURDIR)/.cache
TOOLBIN := $(CACHE)/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# Pinned tools; `make tools` installs them into .cache/bin.
BUF_VERSION := v1.73.0
PROTOC_GEN_GO_VERSION := v1.36.12
PROTOC_GEN_GO_GRPC_VERSION := v1.6.2
GRPC_GATEWAY_VERSION := v2.33.0
GOLANGCI_VERSION := v2.6.0

.PHONY: tools-proto
tools-proto: ## Install the pinned protobuf tools into .cache/bin
	GOBIN=$(TOOLBIN) go install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)
	GOBIN=$(TOOLBIN) go install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)
	GOBIN=$(TOOLBIN) go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC_VERSION)
	GOBIN=$(TOOLBIN) go install github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway@$(GRPC_GATEWAY_VERSION)

.PHONY: generate
generate: ## Regenerate Go code from proto/
	PATH=$(TOOLBIN):$$PATH buf generate --template proto/buf.gen.yaml
