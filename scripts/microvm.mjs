#!/usr/bin/env node
// Runs a container in a microVM: see ./microvm --help. `./microvm` is a link to this file, because the first releases of
// Node 20 do not load a module without a file extension.
import { launch } from './setup/launch.mjs'

process.exitCode = await launch(process.argv.slice(2))
