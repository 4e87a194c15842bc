#!/usr/bin/env node
// `./agent-ctl` is a link to this file, as `./microvm` is to microvm.mjs.
import { launchCtl } from './setup/launch.mjs'

process.exitCode = await launchCtl(process.argv.slice(2))
