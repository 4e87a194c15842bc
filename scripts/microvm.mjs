#!/usr/bin/env node
// Runs a container in a microVM: see ./microvm --help. `./microvm` is a link to this file, for the first releases of
// Node 20 refuse a module without an ending.
import { launch } from './setup/launch.mjs'

process.exitCode = await launch(process.argv.slice(2))
