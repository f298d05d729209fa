// Package field reads names and values of HTTP header fields as they lie in a
// buffer, without copies, for the load generator and the backend.
//
// It is pure, and knows no field by name.
package field
