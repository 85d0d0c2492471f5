package protocol

// EnvironmentParams name an environment.
type EnvironmentParams struct {
	ID string `wire:"environmentId"`
}

// EnvironmentAddParams name an exec-server.
type EnvironmentAddParams struct {
	ID        string             `wire:"environmentId"`
	URL       string             `wire:"execServerUrl"`
	Token     *string            `wire:"authBearerToken,opt"`
	RequestID *string            `wire:"websocketRequestId,opt"`
	Timeout   *uint              `wire:"connectTimeoutMs,opt"`
	Skills    *EnvironmentSkills `wire:"skills,opt"`
}

// EnvironmentSkills are skills that an environment must have.
type EnvironmentSkills struct {
	Required []string `wire:"required,opt"`
}
