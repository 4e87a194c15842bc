import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { ADDRESS_BITS } from '../../src/base/ip-address.ts'
import { silentLogger } from '../../src/base/log.ts'
import { METADATA_ITEM } from '../../src/base/vm-metadata/point-to-point.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { VMMetadata } from '../../src/gen/vm.ts'
import { NetworkRecord } from '../../src/handlers/network/network-record.ts'
import { configureNetwork } from '../../src/handlers/network/vm-metadata/configure-network.ts'
import { readVmMetadata } from '../../src/handlers/network/vm-metadata/read-vm-metadata.ts'
import { realOs } from '../../test/support/os/real-os.ts'
import { benchEnvironment, median, report } from '../support/figure.ts'

/**
 * The time from VM metadata to addresses and default routes of both families, against only the same netlink messages. Files
 * stand for the firmware, a link of a network namespace for the guest's.
 */
const ROUNDS = 201
const INSIDE = 'inside'
const LINK = 'bench0'
const ENDS = [
  { family: 'ipv4', any: '0.0.0.0', ip: '10.0.0.2', peerIp: '10.0.0.1', flags: 0 },
  { family: 'ipv6', any: '::', ip: 'fd00::2', peerIp: 'fd00::1', flags: 2 },
] as const

type RealOs = Awaited<ReturnType<typeof realOs>>

if (process.argv[2] === INSIDE) await measure(await realOs())
else inNamespace()

function inNamespace(): void {
  const script = [process.execPath, import.meta.filename, INSIDE]
  const { status } = spawnSync('unshare', ['--net', ...script], {
    stdio: 'inherit',
    env: benchEnvironment(),
  })
  process.exitCode = status ?? 1
}

async function measure(os: RealOs): Promise<void> {
  execFileSync('ip', ['tuntap', 'add', 'dev', LINK, 'mode', 'tap'])
  const root = makeTemporaryFolder(tmpdir())
  try {
    putMetadata(root)
    const agent: number[] = []
    const bare: number[] = []
    for (let round = 0; round < ROUNDS; round++) {
      bare.push(await elapsedUs(os, () => sendMessages(os)))
      agent.push(await elapsedUs(os, () => applyMetadata(os, root)))
    }
    report({ figure: 'metadata to routes', unit: 'us', value: median(agent), floor: median(bare), limit: 20 })
  } finally {
    removeTemporaryFolder(root)
  }
}

/** Writes the metadata as the kernel's qemu_fw_cfg driver shows it. */
function putMetadata(root: string): void {
  const [v4, v6] = ENDS
  const metadata = VMMetadata.create({ name: 'bench', networkConfig: { v4, v6 } })
  const bytes = VMMetadata.encode(metadata).finish()
  const item = join(root, 'by_key/32')
  mkdirSync(item, { recursive: true })
  writeFileSync(join(item, 'size'), `${bytes.length}\n`)
  writeFileSync(join(item, 'raw'), bytes)
  const name = join(root, 'by_name', METADATA_ITEM)
  mkdirSync(dirname(name), { recursive: true })
  symlinkSync(item, name)
}

async function applyMetadata(os: RealOs, root: string): Promise<void> {
  const log = silentLogger()
  const record = new NetworkRecord(log)
  const found = await readVmMetadata({ files: os.files, root }, log)
  if (found === undefined) throw new Error('no metadata')
  const { clock, files, network, uevents } = os
  await configureNetwork(
    { clock, files, network, uevents, log, record, interface: '', timeoutMs: 3000 },
    found,
  )
}

function sendMessages({ network }: RealOs): void {
  const linkIndex = indexOf(network)
  network.setLink(linkIndex, { up: true })
  for (const { family, any, ip, peerIp, flags } of ENDS) {
    const prefixLength = ADDRESS_BITS[family]
    network.addAddress({ linkIndex, family, address: ip, peer: peerIp, prefixLength, scope: 0, flags })
    const destination = { address: any, prefixLength: 0 }
    network.addRoute({ family, destination, gateway: peerIp, linkIndex, scope: 0, protocol: 3, flags: 4 })
  }
}

async function elapsedUs({ network }: RealOs, round: () => Promise<void> | void): Promise<number> {
  const begin = performance.now()
  await round()
  const ms = performance.now() - begin
  const routes = network.routes().filter(({ destination }) => destination.prefixLength === 0)
  if (routes.length !== ENDS.length) throw new Error(`${routes.length} default routes`)
  for (const address of network.addresses()) if (address.peer !== undefined) network.removeAddress(address)
  network.setLink(indexOf(network), { up: false })
  return ms * 1000
}

function indexOf(network: RealOs['network']): number {
  return network.links().find(({ name }) => name === LINK)?.index ?? 0
}
