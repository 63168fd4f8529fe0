package cubby

// Messages of envd's process service in the JSON form of proto3: absent means
// zero, bytes are base64.

type wireConfig struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args,omitempty"`
	Envs map[string]string `json:"envs,omitempty"`
	Cwd  string            `json:"cwd,omitempty"`
}

type wireSize struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

type wirePTY struct {
	Size wireSize `json:"size"`
}

type wireStart struct {
	Process wireConfig `json:"process"`
	PTY     *wirePTY   `json:"pty,omitempty"`
	Tag     string     `json:"tag,omitempty"`
	Stdin   bool       `json:"stdin"` // absent would mean true
}

// wireSelector is a command: by its process id, or else by its tag.
type wireSelector struct {
	PID uint32 `json:"pid,omitempty"`
	Tag string `json:"tag,omitempty"`
}

type wireSelect struct {
	Process wireSelector `json:"process"`
	PTY     *wirePTY     `json:"pty,omitempty"`    // Update
	Signal  string       `json:"signal,omitempty"` // SendSignal
	Input   *wireInput   `json:"input,omitempty"`  // SendInput
}

type wireInput struct {
	Stdin []byte `json:"stdin,omitempty"`
	PTY   []byte `json:"pty,omitempty"`
}

// wireEvent is what a command did; one of the fields is set, and none for a
// keepalive.
type wireEvent struct {
	Event struct {
		Start *struct {
			PID uint32 `json:"pid"`
		} `json:"start"`
		Data *wireData `json:"data"`
		End  *wireEnd  `json:"end"`
	} `json:"event"`
}

type wireData struct {
	Stdout []byte `json:"stdout"`
	Stderr []byte `json:"stderr"`
	PTY    []byte `json:"pty"`
}

type wireEnd struct {
	ExitCode int    `json:"exitCode"`
	Exited   bool   `json:"exited"`
	Status   string `json:"status"`
}

type wireProcesses struct {
	Processes []struct {
		Config wireConfig `json:"config"`
		PID    uint32     `json:"pid"`
		Tag    string     `json:"tag"`
	} `json:"processes"`
}
