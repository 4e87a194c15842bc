import { silentLogger } from '../../src/base/log.ts'
import { NO_CONFIGURATION } from '../../src/host/service/configuration.ts'
import { runDaemon } from '../../src/host/service/daemon.ts'

/** A daemon without machines, whose state folder is argument 1. */
const [, , stateFolder = ''] = process.argv
const options = { stateFolder, configuration: NO_CONFIGURATION, mock: true, log: silentLogger() }
await runDaemon({ ...options, onReady: () => process.stdout.write('up\n') })
