import type { CreateSandboxRequest } from '../../../src/gen/agent.ts'
import type { DeepPartial, Mount, Spec } from '../../../src/gen/oci.ts'
import type { Agent } from '../../../src/microvm/run/container-session.ts'
import {
  container,
  exec,
  type Ports,
  type ProcessOptions,
  RemoteProcess,
} from '../host/container-requests.ts'
import { bootTestGuest, type TestGuest, type TestGuestOptions } from './boot-guest.ts'

/** Where the busybox disk is mounted in the guest. */
export const ROOT = '/run/kata-containers/sandbox/busybox'

/** What a test's container has besides what most have. */
export interface ContainerOptions {
  readonly mounts?: readonly Mount[]
  readonly hooks?: DeepPartial<Spec>['Hooks']
  readonly sysctls?: Readonly<Record<string, string>>
  readonly terminal?: boolean
  readonly ports?: Ports
  /** In place of the few that a process has. */
  readonly capabilities?: readonly string[]
}

/** The guest's own /proc, for a container that looks at the guest or does it harm. */
export const GUEST_PROC = bind('/proc', '/guest/proc')

/** A part of the guest's file systems for a container. */
export function bind(source: string, destination: string): Mount {
  return { source, destination, type: 'bind', options: ['rbind', 'rw'] }
}

/** The containers of a guest, on one disk. */
export interface GuestPod {
  readonly agent: Agent
  /** Creates a container whose process waits to be started. */
  create(id: string, args: readonly string[], options?: ContainerOptions): Promise<RemoteProcess>
  /** Creates and starts a container. */
  run(id: string, args: readonly string[], options?: ContainerOptions): Promise<RemoteProcess>
  add(id: string, execId: string, args: readonly string[], options?: ProcessOptions): Promise<RemoteProcess>
  /** Runs a shell script in a container of its own to its end and answers its output; it must exit with 0. */
  output(id: string, script: string, options?: ContainerOptions): Promise<string>
  remove(id: string): Promise<void>
}

/** Boots a guest and creates a sandbox in it. */
export async function bootPod(
  options: TestGuestOptions = {},
  sandbox: DeepPartial<CreateSandboxRequest> = {},
): Promise<{ readonly guest: TestGuest; readonly pod: GuestPod }> {
  const guest = await bootTestGuest(options)
  try {
    return { guest, pod: await createPod(guest.agent, guest.rootSource, sandbox) }
  } catch (error) {
    const console = guest.consoleText()
    await guest.stop()
    throw new Error(`no sandbox; the console:\n${console}`, { cause: error })
  }
}

/** Creates the sandbox with the busybox disk mounted for all its containers. */
export async function createPod(
  agent: Agent,
  rootSource: string,
  sandbox: DeepPartial<CreateSandboxRequest> = {},
): Promise<GuestPod> {
  const disk = { driver: 'blk', source: rootSource, fstype: 'ext4', options: [], mountPoint: ROOT }
  await agent.createSandbox({ sandboxId: 'pod', hostname: 'vm-pod', storages: [disk], ...sandbox })
  const create: GuestPod['create'] = async (id, args, options) => {
    await agent.createContainer(requestOf(id, args, options))
    return new RemoteProcess(agent, id)
  }
  const run: GuestPod['run'] = async (id, args, options) => {
    const init = await create(id, args, options)
    await agent.startContainer({ containerId: id })
    return init
  }
  const remove = async (id: string) => {
    await agent.removeContainer({ containerId: id })
  }
  return {
    agent,
    create,
    run,
    remove,
    add: async (id, execId, args, options) => {
      await agent.execProcess(exec(id, execId, args, options))
      return new RemoteProcess(agent, id, execId)
    },
    output: async (id, script, options) => {
      const init = await run(id, ['sh', '-c', script], options)
      const [output, errors] = [await init.readAll('stdout'), await init.readAll('stderr')]
      const status = await init.wait()
      if (status !== 0) throw new Error(`${script}: exit status ${status}: ${output}${errors}`)
      await remove(id)
      return output.toString()
    },
  }
}

/** Resolves with the first console line that matches, past or coming. Rejects when the guest is gone without it. */
export async function consoleLine({ guest: { vm } }: TestGuest, wanted: RegExp): Promise<string> {
  const past = vm.console.lines.find((line) => wanted.test(line))
  if (past !== undefined) return past
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  const stop = vm.console.onLine((line) => {
    if (wanted.test(line)) resolve(line)
  })
  void vm.exited.then(() =>
    reject(new Error(`the console ended without ${wanted}:\n${vm.console.lines.join('\n')}`)),
  )
  return promise.finally(stop)
}

function requestOf(id: string, args: readonly string[], options: ContainerOptions = {}) {
  const { OCI, ...request } = container(id, ROOT, args, {
    terminal: options.terminal ?? false,
    ports: options.ports ?? {},
  })
  const mounts = [...(OCI?.Mounts ?? []), ...(options.mounts ?? [])]
  const linux = { ...OCI?.Linux, Sysctl: options.sysctls ?? {} }
  const capabilities = options.capabilities && [...options.capabilities]
  const sets = capabilities && { Bounding: capabilities, Effective: capabilities, Permitted: capabilities }
  const process = { ...OCI?.Process, ...(sets && { Capabilities: sets }) }
  const hooks = options.hooks && { Hooks: options.hooks }
  return { ...request, OCI: { ...OCI, Process: process, Mounts: mounts, Linux: linux, ...hooks } }
}
