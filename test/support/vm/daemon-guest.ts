import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { type Agent, agentOf } from '../../../src/client/container/container-session.ts'
import { connectMachine } from '../../../src/client/daemon/connect-machine.ts'
import {
  ChangeStateRequest_Change as Change,
  type Specification,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { readRing } from '../../../src/host/instance/holder/holder-files.ts'
import type { Machine, VmSpec } from '../../../src/host/spec/spec.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { specToProto } from '../../../src/host/spec/to-proto.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { containerRootSource, type GuestParts, guestSpec } from '../../../src/microvm/run/guest-spec.ts'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { daemonClient } from '../host-wing/running-daemon.ts'
import { type MicrovmRun, microvm } from '../microvm/run-microvm.ts'
import { endChild } from '../processes.ts'
import { startDaemonProcess } from '../wing/daemon-process.ts'
import { CRUN, progress } from './boot-guest.ts'

/** A daemon in a process of its own, with one booted guest, the instance `web`. */
export interface DaemonGuest {
  readonly agent: Agent
  /** To the agent. */
  readonly connection: TtrpcClient
  readonly rootSource: string
  readonly client: ReturnType<typeof daemonClient>
  readonly daemonPid: number
  readonly folder: string
  /** Runs a command of `./microvm` on the daemon. */
  run(...words: readonly string[]): Promise<MicrovmRun>
  /** What the holder keeps of the console. */
  consoleText(): Promise<string>
  /** Ends all. */
  close(): Promise<void>
}

const BOOT_TIMEOUT_MS = 120_000

/** `folder` is an empty one of the caller; `extra` are devices behind slot 5. */
export async function bootInDaemon(options: {
  readonly folder: string
  readonly machine?: Machine
  readonly extra?: Pick<VmSpec, 'devices' | 'backends'>
  readonly daemon?: Parameters<typeof startDaemonProcess>[1]
}): Promise<DaemonGuest> {
  const { folder, machine = 'pc-q35-7.2', extra } = options
  const parts: GuestParts = {
    ...{ machine, memoryMib: 512, cpus: 1, append: [CRUN], ...(extra && { extra }), link: LINK },
    boot: await ensureImage({ progress }),
    containerRoot: await ensureContainerRoot(progress),
  }
  const state = join(folder, 'state')
  const daemon = await startDaemonProcess(state, options.daemon)
  const socket = join(state, 'admin.sock')
  const client = daemonClient(socket)
  const consoleText = async () => {
    const [id = ''] = readdirSync(join(state, 'instances'))
    return (await readRing(join(state, 'instances', id), 0)).bytes.toString('latin1')
  }
  const close = async () => {
    await client.instances.remove({ key: 'web' }).catch(() => {})
    client.close()
    await endChild(daemon)
  }
  try {
    const specification = specToProto(guestSpec(parts))
    await client.instances.ensureInstance({ properties: { key: 'web' }, specification })
    await client.instances.changeState({ key: 'web', change: Change.RUN })
    const dialer = { connect: (signal: AbortSignal) => connectMachine(socket, 'web', signal) }
    const connection = await connectAgent(dialer, AbortSignal.timeout(BOOT_TIMEOUT_MS))
    return {
      ...{ agent: agentOf(connection), connection },
      rootSource: containerRootSource(parts),
      client,
      daemonPid: daemon.pid ?? 0,
      folder,
      consoleText,
      run: (...words) => microvm([...words, '--socket', socket]),
      close: async () => {
        connection.close()
        await close()
      },
    }
  } catch (error) {
    const text = await consoleText().catch(String)
    await close()
    throw new Error(`the guest did not boot; its console:\n${text}`, { cause: error })
  }
}

/** A guest with an agent and the vsock daemon's device, which a save unplugs. `disk`, at `05`, is its own. */
export async function savableGuest(
  disk: string,
  { extra, ...parts }: Partial<Pick<GuestParts, 'machine' | 'append' | 'link' | 'extra'>> = {},
): Promise<Specification> {
  const backend = specKey('containers-file')
  const specification = guestSpec({
    ...{ machine: 'pc-i440fx-7.2', memoryMib: 512, cpus: 1, append: [CRUN], link: LINK },
    ...{ boot: await ensureImage({ progress }), containerRoot: undefined },
    ...parts,
    extra: {
      devices: {
        ...extra?.devices,
        [specKey('containers')]: { kind: 'disk', slot: 5, serial: 'containers', backend },
      },
      backends: { ...extra?.backends, [backend]: { kind: 'file', path: disk, access: 'read-write' } },
    },
  })
  return specToProto(specification)
}

/** The daemon of instances chooses the context id. */
const LINK: GuestParts['link'] = {
  device: (slot, backend) => ({ kind: 'vsock', slot, cid: 0, backend }),
  backend: { kind: 'vsock-daemon' },
  commandLine: [],
}
