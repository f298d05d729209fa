// Package doctor says what this host, its kernel and the fleet allow the router to
// do, and what would allow more: the report of warmpath doctor.
//
// A check is of what is needed to serve as configured, or of what could be better;
// only the former make a Report fail. Every check that is not ok has a remedy.
//
// What is found (Host, and the answers of nodes) is kept apart from what is made of
// it, which is pure. Nothing is changed on the host: the kernel's programs are
// loaded for a moment, follow no connection, and are gone before Examine returns.
package doctor
