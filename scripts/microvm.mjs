#!/usr/bin/env node
// `./microvm` is a link to this file: the first releases of Node 20 do not load a module without a file extension.
import { launch } from './setup/launch.mjs'

process.exitCode = await launch(process.argv.slice(2))
