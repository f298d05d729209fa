package admin

import (
	"errors"
	"net/http"

	"warmpath/dataplane"
)

// TokensView is the prompt of a request as its engine sees it.
type TokensView struct {
	Text      string   `json:"text"`
	IDs       []uint32 `json:"ids"`
	Exactness string   `json:"exactness"` // exact, prefix (text and ids are the beginning) or text (there are none)
	Class     string   `json:"class"`     // what has to be proved of the engine
	Reason    string   `json:"reason,omitempty"`
}

// tokens renders and tokenises a body without sending it.
func (s *Server) tokens(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r, maxExplainBytes)
	if !ok {
		return
	}
	path := r.URL.Query().Get("path")
	if path == "" {
		path = "/v1/chat/completions"
	}
	t, err := s.opt.Dataplane.Tokens(path, body)
	var bad *dataplane.ExplainError
	switch {
	case errors.As(err, &bad):
		refuse(w, bad.Status, bad.Code, bad.Message)
	case err != nil:
		refuse(w, http.StatusBadRequest, "cannot_tell_tokens", err.Error())
	default:
		reply(w, http.StatusOK, NewTokensView(t))
	}
}

// NewTokensView is what people and programs see of a prompt.
func NewTokensView(t dataplane.PromptTokens) TokensView {
	if t.IDs == nil {
		t.IDs = []uint32{}
	}
	return TokensView{Text: string(t.Text), IDs: t.IDs, Exactness: t.Verdict.Level.String(), Class: t.Verdict.Class.String(), Reason: t.Verdict.Reason}
}
