package protocol

import "encoding/json"

// PathParams name a file or folder.
type PathParams struct {
	Path AbsPath `wire:"path"`
}

// FsWriteFileParams write a whole file.
type FsWriteFileParams struct {
	Path       AbsPath `wire:"path"`
	DataBase64 string  `wire:"dataBase64"`
}

// FsCreateDirectoryParams make a folder.
type FsCreateDirectoryParams struct {
	Path      AbsPath `wire:"path"`
	Recursive *bool   `wire:"recursive,opt"`
}

// FsRemoveParams remove a file or folder.
type FsRemoveParams struct {
	Path      AbsPath `wire:"path"`
	Recursive *bool   `wire:"recursive,opt"`
	Force     *bool   `wire:"force,opt"`
}

// FsCopyParams copy a file or folder.
type FsCopyParams struct {
	SourcePath      AbsPath `wire:"sourcePath"`
	DestinationPath AbsPath `wire:"destinationPath"`
	Recursive       bool    `wire:"recursive,default"`
}

// FsWatchParams begin to watch.
type FsWatchParams struct {
	WatchID string  `wire:"watchId"`
	Path    AbsPath `wire:"path"`
}

// FsUnwatchParams end a watch.
type FsUnwatchParams struct {
	WatchID string `wire:"watchId"`
}

// FuzzySearchParams ask for files once.
type FuzzySearchParams struct {
	Query             string   `wire:"query"`
	Roots             []string `wire:"roots"`
	CancellationToken *string  `wire:"cancellationToken,opt"`
}

// FuzzySessionStartParams open a search.
type FuzzySessionStartParams struct {
	SessionID string   `wire:"sessionId"`
	Roots     []string `wire:"roots"`
}

// FuzzySessionUpdateParams change the query of a search.
type FuzzySessionUpdateParams struct {
	SessionID string `wire:"sessionId"`
	Query     string `wire:"query"`
}

// FuzzySessionStopParams end a search.
type FuzzySessionStopParams struct {
	SessionID string `wire:"sessionId"`
}

// MergeStrategy says what becomes of a table that is there already.
type MergeStrategy string

// MergeUpsert keeps keys that are not given.
const MergeUpsert MergeStrategy = "upsert"

// Variants implements the enumeration.
func (MergeStrategy) Variants() []string { return []string{"replace", "upsert"} }

// ConfigValueWriteParams change one key of the config.
type ConfigValueWriteParams struct {
	KeyPath         string          `wire:"keyPath"`
	Value           json.RawMessage `wire:"value"`
	MergeStrategy   MergeStrategy   `wire:"mergeStrategy"`
	FilePath        *string         `wire:"filePath,opt"`
	ExpectedVersion *string         `wire:"expectedVersion,opt"`
}

// ConfigEdit is one change of many.
type ConfigEdit struct {
	KeyPath       string          `wire:"keyPath"`
	Value         json.RawMessage `wire:"value"`
	MergeStrategy MergeStrategy   `wire:"mergeStrategy"`
}

// ConfigBatchWriteParams change several keys, all or none.
type ConfigBatchWriteParams struct {
	Edits            []ConfigEdit `wire:"edits"`
	FilePath         *string      `wire:"filePath,opt"`
	ExpectedVersion  *string      `wire:"expectedVersion,opt"`
	ReloadUserConfig bool         `wire:"reloadUserConfig,default"`
}
