//go:build linux

package commands

import (
	"os"
	"syscall"

	"github.com/cubby-sandbox/cubby/cmd/internal/envd"
)

// endOf describes how a process ended, as E2B does.
func endOf(st *os.ProcessState) *envd.ProcessEvent_EndEvent {
	if st == nil { // nobody knows: somebody else has waited for it
		status := "signal: " + syscall.SIGKILL.String()
		return &envd.ProcessEvent_EndEvent{ExitCode: -1, Status: status, Error: &status}
	}
	e := &envd.ProcessEvent_EndEvent{ExitCode: int32(st.ExitCode()), Exited: st.Exited(), Status: st.String()}
	if !st.Success() {
		e.Error = &e.Status
	}
	return e
}

func dataEvent(d *envd.ProcessEvent_DataEvent) *envd.ProcessEvent {
	return &envd.ProcessEvent{Event: &envd.ProcessEvent_Data{Data: d}}
}

func stdoutEvent(b []byte) *envd.ProcessEvent {
	return dataEvent(&envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Stdout{Stdout: b}})
}

func stderrEvent(b []byte) *envd.ProcessEvent {
	return dataEvent(&envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Stderr{Stderr: b}})
}

func ptyEvent(b []byte) *envd.ProcessEvent {
	return dataEvent(&envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Pty{Pty: b}})
}

func startEvent(pid uint32) *envd.ProcessEvent {
	return &envd.ProcessEvent{Event: &envd.ProcessEvent_Start{Start: &envd.ProcessEvent_StartEvent{Pid: pid}}}
}

func endEvent(e *envd.ProcessEvent_EndEvent) *envd.ProcessEvent {
	return &envd.ProcessEvent{Event: &envd.ProcessEvent_End{End: e}}
}
