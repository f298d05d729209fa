package tokenize

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// newAddedTokens sorts the tokens into the two sets and decides which of them
// are solid. rewriting says that there is a normalizer; form gives what a
// normalized token is matched by.
func newAddedTokens(tokens []*addedToken, rewriting bool, form func(string) string) addedTokens {
	a := addedTokens{all: map[uint32]*addedToken{}, solid: map[uint32]bool{}, rewriting: rewriting}
	var sets [2][]*addedToken
	var forms [2][]string
	for _, token := range tokens {
		set, shape := 0, token.content
		if token.normalized {
			set, shape = 1, form(token.content)
		}
		sets[set] = append(sets[set], token)
		forms[set] = append(forms[set], shape)
		a.all[token.id] = token
	}
	a.raw, a.normalized = newMatcher(sets[0], forms[0]), newMatcher(sets[1], forms[1])
	for id := range a.survey(tokens).solid(&a) {
		a.solid[id] = true
	}
	return a
}

// survey is what must be known of all tokens to tell whether one is solid.
type survey struct {
	sorted                     []*addedToken // by content
	inside                     [256]bool     // bytes that stand in a token, but not first
	rawFirst                   [256]bool     // bytes that a token matched in raw text begins with
	singleWord, lstrip, rstrip bool          // some token is so
}

func (a *addedTokens) survey(tokens []*addedToken) *survey {
	v := &survey{sorted: slices.Clone(tokens)}
	slices.SortFunc(v.sorted, func(a, b *addedToken) int { return strings.Compare(a.content, b.content) })
	for _, token := range tokens {
		for _, b := range []byte(token.content[1:]) {
			v.inside[b] = true
		}
		if !token.normalized {
			v.rawFirst[token.content[0]] = true
		}
		v.singleWord = v.singleWord || token.singleWord
		v.lstrip = v.lstrip || token.lstrip
		v.rstrip = v.rstrip || token.rstrip
	}
	return v
}

// solid yields the ids of the solid tokens.
func (v *survey) solid(a *addedTokens) func(yield func(uint32) bool) {
	return func(yield func(uint32) bool) {
		for i, token := range v.sorted {
			// What a content is a prefix of follows it in the order.
			prefix := i+1 < len(v.sorted) && strings.HasPrefix(v.sorted[i+1].content, token.content)
			if !prefix && v.standsAlone(token, a) && !yield(token.id) {
				return
			}
		}
	}
}

// standsAlone reports whether no other token, and no white space, can take a
// part of an occurrence of token, which is no prefix of another one, or keep it
// from being found.
func (v *survey) standsAlone(token *addedToken, a *addedTokens) bool {
	if token.lstrip || token.rstrip || token.singleWord || v.inside[token.content[0]] {
		return false
	}
	first, _ := utf8.DecodeRuneInString(token.content)
	last, _ := utf8.DecodeLastRuneInString(token.content)
	if v.singleWord && (isWordRune(first) || isWordRune(last)) ||
		v.rstrip && classOf(first)&space != 0 || v.lstrip && classOf(last)&space != 0 {
		return false
	}
	if !token.normalized {
		return true
	}
	// Those of the raw text are matched first, and could be inside of it.
	if a.rewriting {
		return false
	}
	for at, b := range []byte(token.content) {
		if !v.rawFirst[b] {
			continue
		}
		if _, value := a.raw.trie.longest([]byte(token.content), at); at > 0 || value >= 0 {
			return false
		}
	}
	return true
}
