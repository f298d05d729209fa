package dataplane

import (
	"warmpath/dataplane/prompt"
	"warmpath/dataplane/wire"
)

// class is what a path and method mean to the router.
type class struct {
	prompt bool        // bears a prompt: routed by it
	form   prompt.Form // how it bears it, where its tokens can be known
	scans  bool        // its JSON body may name a model
	local  local       // answered here
	refuse *answer     // refused with this
}

type local uint8

const (
	localNone local = iota
	localModels
	localHealth
)

// promptPaths are the routes whose body bears a prompt (design, section 4).
var promptPaths = map[string]prompt.Form{
	"/v1/chat/completions": prompt.FormChat, "/v1/completions": prompt.FormCompletion,
	"/v1/messages": prompt.FormMessages, "/v1/responses": prompt.FormResponses,
	"/v1/embeddings": prompt.FormNone, "/generate": prompt.FormNone,
	"/v1/chat/completions/render": prompt.FormNone, "/v1/completions/render": prompt.FormNone, "/v1/messages/count_tokens": prompt.FormNone,
	"/inference/v1/generate": prompt.FormNone, "/tokenize": prompt.FormNone, "/v1/tokenize": prompt.FormNone,
}

// passedPaths are engines' routes outside /v1 and /v2 that are passed on by
// load. Routes that change an engine (sleep, flush, adapters, weights) are not
// among them: they are for the engine's operator, who can reach it directly.
var passedPaths = map[string]bool{
	"/detokenize": true, "/rerank": true, "/score": true, "/classify": true, "/pooling": true,
	"/encode": true, "/invocations": true, "/version": true,
}

// refusedPaths lie under /v1 but change one engine for everybody.
var refusedPaths = map[string]bool{
	"/v1/load_lora_adapter": true, "/v1/unload_lora_adapter": true,
}

func classOf(r *wire.Request, head []byte) class {
	path := r.Path.Of(head)
	form, bears := promptPaths[string(path)]
	switch {
	case r.Method == wire.MethodTrace:
		return class{refuse: &errNoTrace}
	case !plainPath(path) && r.Method != wire.MethodOptions:
		return class{refuse: &errPathNotPlain}
	case bears:
		if r.Method == wire.MethodPost {
			return class{prompt: true, form: form, scans: true}
		}
		if r.Method == wire.MethodOptions {
			return class{}
		}
		if string(path) != "/v1/responses" {
			return class{refuse: &errWantsPost}
		}
		return class{}
	case string(path) == "/v1/models":
		if r.Method == wire.MethodGet || r.Method == wire.MethodHead {
			return class{local: localModels}
		}
		return class{refuse: &errWantsGet}
	case string(path) == "/health":
		return class{local: localHealth}
	case refusedPaths[string(path)]:
		return class{refuse: &errNoSuchPath}
	case underVersion(path), passedPaths[string(path)]:
		return class{scans: true}
	}
	return class{refuse: &errNoSuchPath}
}

// plainPath reports whether everybody reads a path alike: it has no escapes, no
// empty and no dot segments, and no slash at its end. Engines decode and some
// servers before them normalise, so that what is refused here by name could
// else be reached under another.
func plainPath(path []byte) bool {
	if len(path) < 2 {
		return true // "/", or a target without a path, which is that
	}
	for i, c := range path {
		switch {
		case c == '%':
			return false
		case c == '/' && (i+1 == len(path) || path[i+1] == '/' || dots(path[i+1:])):
			return false
		}
	}
	return true
}

// dots reports whether the first segment of rest is "." or "..".
func dots(rest []byte) bool {
	n := 0
	for n < len(rest) && rest[n] == '.' {
		n++
	}
	return (n == 1 || n == 2) && (n == len(rest) || rest[n] == '/')
}

// underVersion reports whether the path lies under /v1/ or /v2/.
func underVersion(path []byte) bool {
	return len(path) > 4 && path[0] == '/' && path[1] == 'v' && (path[2] == '1' || path[2] == '2') && path[3] == '/'
}
