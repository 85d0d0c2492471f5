package server

import (
	"context"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

type providerService struct {
	heddlev1.UnimplementedProviderServiceServer
	*Server
}

// ListProviders tells of the providers; see the proto.
func (s *providerService) ListProviders(ctx context.Context, _ *heddlev1.ListProvidersRequest) (*heddlev1.ListProvidersResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	return s.cfg.Settings.Providers(ctx, caller)
}

// GetAccount tells whether there is a key; see the proto.
func (s *providerService) GetAccount(ctx context.Context, _ *heddlev1.GetAccountRequest) (*heddlev1.GetAccountResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	return s.cfg.Settings.AccountState(ctx, caller)
}

// Login keeps a key; see the proto.
func (s *providerService) Login(ctx context.Context, r *heddlev1.LoginRequest) (*heddlev1.LoginResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Settings.LoginAllowed(caller); err != nil {
		return nil, err
	}
	if err := s.cfg.Account.Login(r.GetApiKey()); err != nil {
		return nil, errdefs.New(errdefs.InvalidArgument, "%w", err)
	}
	s.cfg.Logger.Info("logged in with an API key")
	return &heddlev1.LoginResponse{}, nil
}

// Logout forgets the key; see the proto.
func (s *providerService) Logout(ctx context.Context, _ *heddlev1.LogoutRequest) (*heddlev1.LogoutResponse, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	was, err := s.cfg.Account.Logout()
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "%w", err)
	}
	if was {
		s.cfg.Logger.Info("logged out")
	}
	return &heddlev1.LogoutResponse{}, nil
}
