// Package config reads the router's configuration: one strict YAML file,
// single keys of it overridden by WARMPATH_* variables and by flags, checked
// whole, into one immutable Config.
//
// It owns the names, types, defaults and checks of every key, and is the only
// package that reads the environment. It finds all problems of a file at once;
// each names file, line, key, value and remedy. A documented key whose feature
// this binary does not have is refused when it would turn the feature on, never
// accepted and ignored.
//
// It opens nothing but the file it is given, dials nothing, and keeps no global
// state.
package config
