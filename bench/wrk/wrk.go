package wrk

import "embed"

// Scripts are the Lua files of this folder, by file name.
//
//go:embed *.lua
var Scripts embed.FS

// Chat is the name of the script that posts chat requests of one size.
const Chat = "chat.lua"
