package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/heddle-dev/heddle/controlplane/config"
)

// maxKeyInput bounds what is read as a key.
const maxKeyInput = 64 << 10

func newLoginCommand() *cobra.Command {
	var home string
	var withKey bool
	cmd := &cobra.Command{
		Use:   "login --with-api-key",
		Short: "Keep an API key in the home",
		Long: `login reads an API key from its standard input and keeps it in the home's file
account/auth.json, which only its owner can read. The provider "openai" and those with
requires_openai_auth = true use it, before the variable that their env_key names.
It reaches no command, and no client is told what it is.`,
		Example: "  printenv OPENAI_API_KEY | heddle login --with-api-key\n  heddle login status",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !withKey {
				return usageError(errors.New("give --with-api-key and the key on the standard input: accounts are not known here, only keys"))
			}
			account, err := accountOf(home)
			if err != nil {
				return err
			}
			key, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxKeyInput))
			if err != nil {
				return fmt.Errorf("read the key: %w", err)
			}
			if err := account.Login(string(key)); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "logged in; the key is in %s\n", account.Path())
			return err
		},
	}
	cmd.PersistentFlags().StringVar(&home, "home", "", "home `folder` (default $HEDDLE_HOME, else ~/.heddle)")
	cmd.Flags().BoolVar(&withKey, "with-api-key", false, "read the API key from the standard input")
	cmd.AddCommand(&cobra.Command{
		Use:   "status",
		Short: "Say whether the home has a key; exit 1 when it has none",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			account, err := accountOf(home)
			if err != nil {
				return err
			}
			key, err := account.Key()
			if err != nil {
				return err
			}
			if key == "" {
				return errors.New("not logged in")
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "logged in with an API key")
			return err
		},
	})
	return cmd
}

func newLogoutCommand() *cobra.Command {
	var home string
	cmd := &cobra.Command{
		Use:   "logout",
		Short: "Forget the API key of the home",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			account, err := accountOf(home)
			if err != nil {
				return err
			}
			was, err := account.Logout()
			if err != nil {
				return err
			}
			said := "not logged in"
			if was {
				said = "logged out"
			}
			_, err = fmt.Fprintln(cmd.ErrOrStderr(), said)
			return err
		},
	}
	cmd.Flags().StringVar(&home, "home", "", "home `folder` (default $HEDDLE_HOME, else ~/.heddle)")
	return cmd
}

// accountOf is the account of a home.
func accountOf(dir string) (*config.Account, error) {
	f := controlPlaneFlags{home: dir}
	home, err := f.resolveHome()
	if err != nil {
		return nil, usageError(err)
	}
	return config.NewAccount(home), nil
}
