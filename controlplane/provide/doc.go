// Package provide turns the offers of a configuration into actuators.
//
// It owns the translation of keys into each provider's options, and reads the files
// that they name. It never talks to a provider: an offer that cannot work becomes an
// actuator that refuses, with the reason, so that the others go on.
package provide
