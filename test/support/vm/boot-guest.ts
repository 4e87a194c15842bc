import { existsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { messageOf } from '../../../src/base/errors.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import { type Agent, agentOf } from '../../../src/client/container/container-session.ts'
import { HealthDefinition } from '../../../src/gen/health.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import type { QmpClient } from '../../../src/host/qemu/qmp/client.ts'
import { chooseLink } from '../../../src/host/qemu/vsock/choose-link.ts'
import type { VsockKind } from '../../../src/host/qemu/vsock/guest-link.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import { ensureImage, type ImageForm, type ImageOptions } from '../../../src/image/ensure-image.ts'
import { DEFAULT_KERNEL, type KernelName } from '../../../src/image/packages.ts'
import { bootGuest, type Guest } from '../../../src/microvm/run/boot-guest.ts'
import { containerRootSource, type GuestParts } from '../../../src/microvm/run/guest-spec.ts'
import type { RunMachine } from '../../../src/microvm/run/run-machine.ts'
import { clientFor, type ServiceClient } from '../../../src/rpc/client.ts'
import { type ChildExit, testPlace } from './test-place.ts'

/** A booted guest with typed clients. The caller that booted it calls `stop`. */
export interface TestGuest {
  readonly guest: Guest & { readonly vm: TestVm }
  readonly agent: Agent
  readonly health: ServiceClient<typeof HealthDefinition>
  readonly introspection: ServiceClient<typeof IntrospectionDefinition>
  readonly rootSource: string
  readonly folder: string
  consoleText(): string
  stop(): Promise<void>
}

export interface TestVm extends RunMachine {
  readonly qmp: QmpClient
  /** How QEMU has ended, once the console has shown all. */
  readonly exited: Promise<ChildExit>
}

export type TestGuestOptions = Partial<Omit<GuestParts, 'link' | 'boot' | 'containerRoot'>> & {
  readonly kernel?: KernelName
  readonly form?: ImageForm
  /** The policy of an image with policy.node (test/support/os/policy-addon.ts). */
  readonly policy?: ImageOptions['policy']
  readonly debugShell?: boolean
  readonly vsock?: VsockKind
  readonly boot?: GuestParts['boot']
  readonly networkNamespace?: string
}

/** Under emulation, a container's life with an added process takes 1.3 s of CPU time with crun, 3 s with runc. */
export const CRUN = 'agent.runtime=crun'

export const runningGuests = new Set<TestGuest>()

/** An emulated guest boots in some seconds; after ten times that it is stuck. */
const BOOT_TIMEOUT_MS = 120_000

/** Returns and prints the reason why microVMs cannot boot here: `describe.skipIf(cannotBoot() !== undefined)`. */
export function cannotBoot(): string | undefined {
  const reason = reasonNotToBoot()
  if (reason !== undefined) process.stderr.write(`microVM tests are skipped: ${reason}\n`)
  return reason
}

/**
 * Boots a guest and waits until its agent answers. Tries once more, because a guest may lock up under emulation
 * (docs/testing.md). Each failure shows the console; so does a test's failure while the guest runs (show-guests.ts).
 */
export async function bootTestGuest(options: TestGuestOptions = {}): Promise<TestGuest> {
  try {
    return await bootOnce(options)
  } catch (error) {
    process.stderr.write(`${messageOf(error)}\nbooting once more\n`)
    return await bootOnce(options)
  }
}

async function bootOnce(options: TestGuestOptions): Promise<TestGuest> {
  const folder = makeTemporaryFolder(tmpdir())
  let vm: RunMachine | undefined
  const consoleText = () => vm?.console.lines.join('\n') ?? ''
  const parts = await testParts(options)
  try {
    const signal = AbortSignal.timeout(BOOT_TIMEOUT_MS)
    const link = await chooseLink({ override: options.vsock ?? process.env.MICROVM_VSOCK, progress })
    const place = await testPlace({ folder, link, networkNamespace: options.networkNamespace })
    let connecting: Promise<QmpClient> | undefined
    const started = (running: RunMachine) => {
      vm = running
      connecting = place.qmp(signal)
      connecting.catch(() => {})
    }
    const booted = await bootGuest({ parts, place, started, progress, signal })
    const qmp = (await connecting) ?? (await place.qmp(signal))
    const exited = place.exited.then(async (exit) => {
      await booted.vm.console.ended
      return exit
    })
    const guest = { ...booted, vm: { ...booted.vm, qmp, exited } }
    const stop = async () => {
      runningGuests.delete(running)
      qmp.close()
      await guest.close()
      removeTemporaryFolder(folder)
    }
    const running: TestGuest = {
      guest,
      agent: agentOf(guest.connection),
      health: clientFor(HealthDefinition, guest.connection),
      introspection: clientFor(IntrospectionDefinition, guest.connection),
      rootSource: containerRootSource(parts),
      folder,
      consoleText,
      stop,
    }
    runningGuests.add(running)
    return running
  } catch (error) {
    removeTemporaryFolder(folder)
    throw new Error(`the guest did not boot; its console:\n${consoleText()}`, { cause: error })
  }
}

export function progress(line: string): void {
  process.stderr.write(`${line}\n`)
}

async function testParts(options: TestGuestOptions): Promise<Omit<GuestParts, 'link'>> {
  const { boot, vsock: _, networkNamespace: __, kernel = DEFAULT_KERNEL, form = 'disk', ...others } = options
  const { policy = false, debugShell = false, ...overrides } = others
  return {
    machine: 'q35',
    memoryMib: form === 'initrd' ? 1024 : 512,
    // A second emulated CPU makes a test a quarter slower; tests of concurrency ask for it.
    cpus: 1,
    append: [],
    ...overrides,
    boot: boot ?? (await ensureImage({ kernel, form, policy, debugShell, progress })),
    containerRoot: await ensureContainerRoot(progress),
  }
}

function reasonNotToBoot(): string | undefined {
  if (process.platform !== 'linux' || process.arch !== 'x64') return 'they need Linux on x86-64'
  if (process.getuid?.() !== 0) return 'they need root'
  if (!existsSync('/usr/bin/qemu-system-x86_64')) return 'qemu-system-x86 is not installed'
  return undefined
}
