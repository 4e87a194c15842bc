#!/usr/bin/env node
// Asks and commands an agent: see ./agent-ctl --help. `./agent-ctl` is a link to this file, as `./microvm` is to microvm.mjs.
import { launchCtl } from './setup/launch.mjs'

process.exitCode = await launchCtl(process.argv.slice(2))
