package protocol

// InitializeResult answers initialize.
type InitializeResult struct {
	UserAgent      string          `json:"userAgent"`
	CodexHome      string          `json:"codexHome"`
	PlatformFamily string          `json:"platformFamily"`
	PlatformOs     string          `json:"platformOs"`
	Heddle         *HeddleFeatures `json:"heddle,omitempty"`
}

// HeddleFeatures answers a client that asked for additions.
type HeddleFeatures struct {
	ProtocolVersion string   `json:"protocolVersion"`
	ServerVersion   string   `json:"serverVersion"`
	TestedWith      []string `json:"testedClientVersions"`
	Features        []string `json:"serverFeatures"`
}
