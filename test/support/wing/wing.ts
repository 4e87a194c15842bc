import { join } from 'node:path'
import { silentLogger } from '../../../src/base/log.ts'
import { type Ruleset, withoutTable } from '../../../src/host/instance/filters/tap-rules.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { INSTANCE_LIMITS, type InstanceLimits } from '../../../src/host/instance/limits.ts'
import type { Plan } from '../../../src/host/instance/machine/plan.ts'
import { filterSteps, tapSteps } from '../../../src/host/instance/machine/plan.ts'
import type { TapLink } from '../../../src/host/instance/machine/tap-links.ts'
import { type InstancesParts, openInstances } from '../../../src/host/instance/open-instances.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'
import type { Registry } from '../../../src/host/instance/registry/registry.ts'
import { specFromProto } from '../../../src/host/spec/from-proto.ts'
import { sleep, startTimer } from '../../../src/os/clock.ts'
import { temporaryFolder } from '../temporary-folder.ts'
import { FakeHolders } from './fakes/fake-holders.ts'

/** A state folder with instances in memory, which can be opened again as a daemon is restarted. */
export class FakeWing {
  readonly folder = temporaryFolder()
  readonly registry = memoryRegistry()
  readonly holders = new FakeHolders()
  readonly links = new Map<string, string>()
  /** The ends of links that each interface was given. */
  readonly addresses = new Map<string, readonly TapLink[]>()
  /** The hardware address of the card that each interface was last connected for. */
  readonly macs = new Map<string, string>()
  /** For nft(8), of leases. */
  readonly fenceCommands: string[] = []
  /** The rulesets of packet filters, by their tables. */
  readonly filters = new Map<string, Ruleset>()
  /** Whether the host can check rulesets at least. */
  hasFilters = true
  /** Fails each ruleset, but no removal. */
  filterFailure: Error | undefined
  /** Fails each connection of an interface. */
  linkFailure: Error | undefined
  monotonicMs = 1000
  /** Rows of instances, steps and streams, by their keys. */
  async rows(): Promise<readonly string[]> {
    const tables = ['instances', 'steps', 'streams'] as const
    const loaded = await Promise.all(tables.map((table) => this.registry.load(table)))
    return loaded.flatMap((table) => [...table.keys()])
  }

  readonly #limits: Partial<InstanceLimits>

  constructor(limits: Partial<InstanceLimits> = {}) {
    this.#limits = limits
  }

  open(
    registry: Registry = this.registry,
    parts: Pick<InstancesParts, 'machines' | 'quotas' | 'moves'> = {},
  ): Promise<Instances> {
    return openInstances({
      ...parts,
      isKept: true,
      stateFolder: this.folder,
      registry,
      holders: this.holders,
      links: {
        exists: (name) => this.links.has(name),
        isRoutable: () => true,
        connect: async (name, { bridge, links, mac }) => {
          if (this.linkFailure) throw this.linkFailure
          this.links.set(name, bridge)
          this.addresses.set(name, links)
          this.macs.set(name, mac)
        },
      },
      filters: {
        check: async () => {
          if (this.filterFailure && !this.hasFilters) throw this.filterFailure
        },
        apply: async (ruleset) => {
          const table = /microvm-\w+/.exec(JSON.stringify(ruleset))?.[0] ?? ''
          const isRemoval = ruleset.nftables.length === withoutTable(table).nftables.length
          if (this.filterFailure && !isRemoval) throw this.filterFailure
          if (isRemoval) this.filters.delete(table)
          else this.filters.set(table, ruleset)
        },
        run: async (commands) => void this.fenceCommands.push(commands),
      },
      clock: {
        ...{ sleep, startTimer },
        monotonicMs: () => this.monotonicMs,
      },
      log: silentLogger(),
      limits: { ...INSTANCE_LIMITS, ...this.#limits },
      plan: fakePlan,
      isWalled: false,
    })
  }
}

/** The fields of the backends that have a daemon. */
const DAEMONS = ['virtiofsd', 'passt', 'vsockDaemon'] as const

const fakePlan: Plan = async ({ document, specification }, folder) => {
  const qmp = join(folder, 'qmp.sock')
  const isChecked = specification !== undefined && document === undefined
  const spec = isChecked ? specFromProto(specification) : undefined
  const daemons = Object.entries(specification?.backends ?? {}).flatMap(([key, backend]) => {
    const kind = DAEMONS.find((name) => backend[name] !== undefined)
    return kind === undefined ? [] : [{ key, kind, socket: join(folder, `${key}.sock`) }]
  })
  return [
    { step: 'folder', words: ['', folder] },
    { step: 'holder', words: ['', folder] },
    ...daemons.map(({ key, kind, socket }) => ({
      step: 'daemon' as const,
      words: [key, `${kind}-${key}`, socket],
      argv: [kind, socket] as const,
    })),
    { step: 'qemu', words: ['', qmp], argv: ['qemu', qmp] },
    ...(spec === undefined ? [] : filterSteps(spec, folder)),
    ...(spec === undefined ? [] : await tapSteps(spec)),
  ]
}
