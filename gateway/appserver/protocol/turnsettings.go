package protocol

// TurnSettingsParams change settings of one running turn. A service tier of null
// clears it.
type TurnSettingsParams struct {
	ThreadID          string             `wire:"threadId"`
	TurnID            string             `wire:"turnId"`
	ApprovalsReviewer *Reviewer          `wire:"approvalsReviewer,opt"`
	Environments      *[]TurnEnvironment `wire:"environments,opt"`
	Model             *string            `wire:"model,opt"`
	Effort            *Effort            `wire:"effort,opt"`
	Summary           *Summary           `wire:"summary,opt"`
	ServiceTier       Nullable           `wire:"serviceTier,default"`
}

func (TurnSettingsParams) refuseUnknown() {}
