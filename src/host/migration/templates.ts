import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { neverAborted } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { SerialQueue } from '../../base/serial-queue.ts'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
  type Instance,
  type SavedMachine,
  type Specification,
  SuspendInstanceRequest,
  type Template,
} from '../../gen/microvm/instance/v1/instance.ts'
import type { Caller, Instances } from '../instance/instances.ts'
import { TEMPLATE_NAME } from '../instance/moves.ts'
import { specFromProto } from '../spec/from-proto.ts'
import type { HostFacts } from './manifest.ts'
import { agentIsReady, checkTemplate, withLink, writeLinkItem } from './template-link.ts'
import { fileDigests, type TemplateRecord, templateOf, templateRecords } from './template-record.ts'

/** Machines that were saved once their agents had run a container, for clones (docs/suspend.md). */
export interface Templates {
  /** Begins to make the template, unless it is there or being made. Throws INVALID_ARGUMENT for a machine that can be none. */
  ensure(specification: Specification): Promise<Template>
  list(): Promise<readonly Template[]>
  /** Throws NOT_FOUND, and FAILED_PRECONDITION while it is made or a clone of it is. */
  remove(name: string): Promise<void>
  /** Makes a clone of a template by `make`; it is not removed meanwhile. Throws while there is none. */
  clone<Result>(name: string, make: () => Promise<Result>): Promise<Result>
  /** What is being made is left to the next daemon, which removes it. */
  close(): void
}

export interface TemplatesParts {
  readonly instances: Instances
  readonly stateFolder: string
  readonly host: () => Promise<HostFacts>
  /** How many there are at most. */
  readonly limit: number
  readonly log: Logger
  /** Of guests without an agent, in tests: when they are ready. */
  readonly answers?: ((key: string, signal: AbortSignal) => Promise<void>) | undefined
}

/** Many times what a guest takes under emulation until its agent answers. */
const BOOT_MS = 120_000
/** For all steps together. */
const MAKING_MS = 300_000
/** The label by which the next daemon knows a machine that is to become a template. */
const LABEL = 'microvm.template'
/** How many failures are told. */
const MOST_FAILURES = 16

interface Making {
  readonly record: TemplateRecord
  step: 'boot' | 'agent' | 'save'
}

export function openTemplates(parts: TemplatesParts): Templates {
  return new HostTemplates(parts)
}

class HostTemplates implements Templates {
  readonly #parts: TemplatesParts
  readonly #records: ReturnType<typeof templateRecords>
  readonly #digestOf = fileDigests()
  readonly #makings = new Map<string, Making>()
  readonly #failures = new Map<string, { readonly record: TemplateRecord; readonly text: string }>()
  /** How many clones are being made of each. */
  readonly #uses = new Map<string, number>()
  /** In which templates are removed, so that no two remove the same one. */
  readonly #removals = new SerialQueue()
  readonly #recovered: Promise<void>
  #isClosed = false

  constructor(parts: TemplatesParts) {
    this.#parts = parts
    this.#records = templateRecords(join(parts.stateFolder, 'templates'))
    this.#recovered = this.#recover().catch((error) =>
      parts.log.error('templates not looked through', { error: messageOf(error) }),
    )
  }

  async ensure(specification: Specification): Promise<Template> {
    const { host } = this.#parts
    checkTemplate(specification)
    specFromProto(this.#withLink(specification))
    await this.#recovered
    const found = await templateOf(specification, { host: await host(), digestOf: this.#digestOf })
    const { name } = found
    const known = (await this.list()).find((each) => each.name === name && each.failure === '')
    if (known !== undefined) return known
    const begun = this.#makings.get(name)
    // Another call may have begun meanwhile.
    if (begun !== undefined) return described(begun.record, { step: begun.step })
    const record = { ...found, createdMs: Date.now() }
    const making: Making = { record, step: 'boot' }
    this.#makings.set(name, making)
    await this.#inTurn(() => this.#makeRoom()).catch((error) => {
      this.#makings.delete(name)
      throw error
    })
    this.#failures.delete(name)
    void this.#make(making).finally(() => this.#makings.delete(name))
    return described(record, { step: making.step })
  }

  async list(): Promise<readonly Template[]> {
    await this.#recovered
    // Before the files are read: what is saved meanwhile is still told as being made.
    const begun = new Set(this.#makings.keys())
    const makings = [...this.#makings.values()].map(({ record, step }) => described(record, { step }))
    const failures = [...this.#failures].flatMap(([name, { record, text: failure }]) =>
      begun.has(name) ? [] : [described(record, { failure })],
    )
    const saved = await this.#saved()
    const ready = (await this.#records.list()).flatMap((record) => {
      const machine = saved.get(record.name)
      if (machine === undefined || begun.has(record.name)) return []
      return [described(record, { sizeBytes: machine.sizeBytes, clones: this.#clonesOf(record.name) })]
    })
    return [...ready, ...makings, ...failures].sort((a, b) => (a.name < b.name ? -1 : 1))
  }

  async remove(name: string): Promise<void> {
    const found = (await this.list()).find((each) => each.name === name)
    if (found === undefined) throw new AgentError('NOT_FOUND', `template ${name}: not found`)
    this.#failures.delete(name)
    if (found.failure !== '') return
    const fail = (text: string) => new AgentError('FAILED_PRECONDITION', `template ${name}: ${text}`)
    await this.#inTurn(async () => {
      if (this.#makings.has(name)) throw fail('being made, want it ready')
      if (this.#isUsed(name)) throw fail('a clone of it is being made, want it once that runs')
      await this.#forget(name)
    })
  }

  async clone<Result>(name: string, make: () => Promise<Result>): Promise<Result> {
    await this.#recovered
    const making = this.#makings.get(name)
    const fail = (text: string) => new AgentError('FAILED_PRECONDITION', `template ${name}: ${text}`)
    if (making !== undefined) throw fail(`being made: step ${making.step}, want it ready`)
    this.#uses.set(name, (this.#uses.get(name) ?? 0) + 1)
    let failure: unknown
    try {
      const made = await make()
      await this.#records.used(name).catch(() => {})
      return made
    } catch (error) {
      failure = error
      throw error
    } finally {
      this.#uses.set(name, (this.#uses.get(name) ?? 1) - 1)
      if (!this.#isUsed(name)) this.#uses.delete(name)
      if (failure !== undefined) await this.#forgetDamaged(name, failure)
    }
  }

  close(): void {
    this.#isClosed = true
  }

  /** Boots the machine, and saves it once its agent has run a container. On failure nothing of it is left but the text. Never throws. */
  async #make(making: Making): Promise<void> {
    const { instances, log, answers } = this.#parts
    const { name, specification } = making.record
    const late = AbortSignal.timeout(BOOT_MS)
    const caller: Caller = { tenant: undefined, signal: neverAborted, inStep: () => {} }
    let isOver = false
    const end = setTimeout(() => {
      isOver = true
      // Whatever waits for its machine fails then.
      if (!this.#isClosed) void this.#removeInstance(name)
    }, MAKING_MS).unref()
    try {
      await this.#records.write(making.record)
      await this.#inTurn(() => writeLinkItem(this.#itemPath))
      const properties = { key: name, tenant: '', labels: { [LABEL]: name } }
      const wanted = { properties, specification: this.#withLink(specification) }
      await instances.ensure(EnsureInstanceRequest.fromPartial(wanted), caller)
      await instances.changeState({ key: name, change: Change.RUN, graceMs: 0 }, caller)
      making.step = 'agent'
      await (answers?.(name, late) ?? agentIsReady(instances, name, { ...caller, signal: late })).catch(
        (error) => {
          if (!late.aborted) throw error
          throw new AgentError('DEADLINE_EXCEEDED', `no answer within ${BOOT_MS / 1000} s`)
        },
      )
      making.step = 'save'
      const request = { key: name, name, withoutAgent: answers !== undefined }
      await instances.suspend(SuspendInstanceRequest.fromPartial(request), caller)
      await this.#inTurn(() => this.#removeReplaced(making.record))
      log.info('template made', { template: name })
    } catch (error) {
      if (this.#isClosed) return
      const what = isOver ? `not made within ${MAKING_MS / 1000} s` : messageOf(error)
      const text = `step ${making.step}: ${what}`
      log.warn('template not made', { template: name, error: text })
      this.#failures.set(name, { record: making.record, text })
      const [oldest = ''] = this.#failures.keys()
      if (this.#failures.size > MOST_FAILURES) this.#failures.delete(oldest)
      await this.#removeInstance(name)
      await this.#inTurn(() => this.#isForgotten(name))
    } finally {
      clearTimeout(end)
    }
  }

  async #inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    return await this.#removals.run(work, neverAborted)
  }

  get #itemPath(): string {
    return join(this.#parts.stateFolder, 'templates', 'link.binpb')
  }

  #withLink(specification: Specification): Specification {
    const interfaceName = `mt${randomBytes(6).toString('hex')}`
    return withLink(specification, { interfaceName, itemPath: this.#itemPath })
  }

  async #saved(): Promise<ReadonlyMap<string, SavedMachine>> {
    const all = await this.#parts.instances.listSaved(ADMIN)
    const whole = all.filter((each) => isTemplate(each) && each.resumedAs === '')
    return new Map(whole.map((each) => [each.name, each] as const))
  }

  #clonesOf(name: string): number {
    return this.#parts.instances.list(ADMIN).filter(({ madeOf }) => madeOf === name).length
  }

  #isUsed(name: string): boolean {
    return (this.#uses.get(name) ?? 0) > 0
  }

  /** Removes those that were used longest ago until there is room for all that are being made. */
  async #makeRoom(): Promise<void> {
    const { limit } = this.#parts
    const made = (await this.#records.list()).filter(({ name }) => !this.#makings.has(name))
    let over = made.length + this.#makings.size - limit
    for (const { name } of made)
      if (over > 0 && !this.#isUsed(name) && (await this.#isForgotten(name))) over -= 1
    if (over > 0)
      throw new AgentError('RESOURCE_EXHAUSTED', `templates: ${limit}, all of which are being made or cloned`)
  }

  /** Removes the templates of the same machine with other files or another QEMU, unless a clone of one is being made. */
  async #removeReplaced({ name, place }: TemplateRecord): Promise<void> {
    for (const other of await this.#records.list())
      if (
        other.place === place &&
        other.name !== name &&
        !this.#makings.has(other.name) &&
        !this.#isUsed(other.name)
      )
        await this.#isForgotten(other.name)
  }

  /** Removes a template of which no clone can be made: the error names its folder, in which a file is damaged or missing. */
  async #forgetDamaged(name: string, error: unknown): Promise<void> {
    await this.#inTurn(async () => {
      if (this.#makings.has(name) || this.#isUsed(name)) return
      const { folder } = (await this.#saved()).get(name) ?? {}
      if (folder === undefined || !messageOf(error).includes(folder)) return
      this.#parts.log.warn('template given up', { template: name, error: messageOf(error) })
      await this.#isForgotten(name)
    }).catch((failure) =>
      this.#parts.log.warn('template not looked at', { template: name, error: messageOf(failure) }),
    )
  }

  async #isForgotten(name: string): Promise<boolean> {
    try {
      await this.#forget(name)
      return true
    } catch (error) {
      this.#parts.log.warn('template not removed', { template: name, error: messageOf(error) })
      return false
    }
  }

  /** The record goes last: by it the next daemon knows what is left. */
  async #forget(name: string): Promise<void> {
    await this.#parts.instances.deleteSaved(name, ADMIN).catch(ignoreNotFound)
    await this.#records.remove(name)
  }

  /** Leaves an instance that is another's alone. */
  async #removeInstance(name: string): Promise<void> {
    const { instances, log } = this.#parts
    if (!instances.list(ADMIN).some((each) => isBeingMade(each, name))) return
    await instances
      .remove(name, ADMIN)
      .catch(ignoreNotFound)
      .catch((error) => log.warn('template not removed', { template: name, error: messageOf(error) }))
  }

  /** Removes what an earlier daemon has not made to its end. */
  async #recover(): Promise<void> {
    const { instances } = this.#parts
    for (const { properties } of instances.list(ADMIN)) {
      const { key = '' } = properties ?? {}
      if (TEMPLATE_NAME.test(key)) await this.#removeInstance(key)
    }
    const saved = await this.#saved()
    const readable = new Set((await this.#records.list()).map(({ name }) => name))
    for (const name of await this.#records.names())
      if (!readable.has(name) || !saved.has(name)) await this.#isForgotten(name)
  }
}

const ADMIN: Caller = { tenant: undefined, signal: neverAborted, inStep: () => {} }

/** Makes what is made of a saved machine, which is kept meanwhile if it is a template. */
export async function cloned<Result>(
  templates: Templates | undefined,
  saved: Pick<SavedMachine, 'name' | 'tenant'>,
  make: () => Promise<Result>,
): Promise<Result> {
  return await (isTemplate(saved) && templates !== undefined ? templates.clone(saved.name, make) : make())
}

export function isTemplate({ name, tenant }: Pick<SavedMachine, 'name' | 'tenant'>): boolean {
  return tenant === '' && TEMPLATE_NAME.test(name)
}

function isBeingMade({ properties }: Pick<Instance, 'properties'>, name: string): boolean {
  const { key, labels, tenant } = properties ?? {}
  return key === name && tenant === '' && labels?.[LABEL] === name
}

function ignoreNotFound(error: unknown): void {
  if (!(error instanceof AgentError) || error.code !== 'NOT_FOUND') throw error
}

function described(
  { name, createdMs, specification }: TemplateRecord,
  facts: Partial<Pick<Template, 'clones' | 'failure' | 'sizeBytes' | 'step'>>,
): Template {
  return {
    name,
    specification,
    createdMs: BigInt(createdMs),
    sizeBytes: 0n,
    clones: 0,
    step: '',
    failure: '',
    ...facts,
  }
}
