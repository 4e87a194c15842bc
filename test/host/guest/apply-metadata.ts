import { readFileSync } from 'node:fs'
import { silentLogger } from '../../../src/base/log.ts'
import { VMMetadata } from '../../../src/gen/vm.ts'
import { NetworkRecord } from '../../../src/handlers/network/network-record.ts'
import { configureNetwork } from '../../../src/handlers/network/vm-metadata/configure-network.ts'
import { realOs } from '../../support/os/real-os.ts'

// node apply-metadata.ts < CONFIGS: applies VM metadata with each of these network configurations (JSON) to eth0 of its
// network namespace, and prints as JSON which of them changed something.
const log = silentLogger()
const { clock, files, network, uevents } = await realOs()
const record = new NetworkRecord(log)
const settings = { interface: 'eth0', timeoutMs: 3000 }
const configs: Parameters<typeof VMMetadata.create>[0][] = JSON.parse(readFileSync(0, 'utf8'))
const changed: boolean[] = []
for (const config of configs) {
  const found = { item: 'test', metadata: VMMetadata.create(config) }
  changed.push(await configureNetwork({ clock, files, network, uevents, log, record, ...settings }, found))
}
process.stdout.write(JSON.stringify(changed))
