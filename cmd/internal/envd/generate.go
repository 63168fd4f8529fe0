// Package envd holds the messages of E2B's in-sandbox daemon, generated from the
// .proto files beside it; envdconnect has the services.
//
// Generating needs protoc, protoc-gen-go v1.36.11 and protoc-gen-connect-go
// v1.21.1 on the path.
package envd

//go:generate protoc --go_out=. --go_opt=paths=source_relative --connect-go_out=. --connect-go_opt=paths=source_relative filesystem.proto process.proto
