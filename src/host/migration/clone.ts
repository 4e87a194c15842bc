import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentError } from '../../base/errors.ts'
import type { SavedInit } from '../../gen/microvm/instance/v1/instance.ts'
import { InstanceRecord } from '../../gen/microvm/instance/v1/records.ts'
import { ownAddress } from '../instance/connect-agent.ts'
import { isOfTemplate, type SavedContent } from '../instance/moves.ts'
import { readClaim, resumedAlready } from '../instance/record/saved-claim.ts'
import { makeOverlays } from '../instance/snapshots/overlay-file.ts'
import { needsSharedMemory } from '../spec/check-spec.ts'
import { backendFromProto } from '../spec/from-proto.ts'
import { cloneRecord, ownPlug } from './clone-record.ts'
import type { Keepers } from './keepers.ts'
import { FILES, type Manifest } from './manifest.ts'
import { LOADED, load, openSaved, type ResumeParts } from './resume.ts'
import { bring } from './saved-folder.ts'

export interface CloneParts extends ResumeParts {
  readonly keepers: Keepers
  /** What files of saved machines were like when this daemon has read them. */
  readonly checked: Map<string, string>
  /** Whether clones are wanted of a guest that has no agent, which would make them different. */
  readonly withoutAgent: boolean
}

/** Checks a saved machine of which a clone is to be made. The saved one stays as it is. */
export async function openClone(init: SavedInit, parts: CloneParts): Promise<SavedContent> {
  const { folder } = parts
  await refuseClaimed(folder)
  try {
    return await openUnclaimed(init, parts)
  } catch (error) {
    // It may have been resumed meanwhile, which takes its files away.
    await refuseClaimed(folder)
    throw error
  }
}

async function openUnclaimed(init: SavedInit, parts: CloneParts): Promise<SavedContent> {
  const { atStep, checked, folder, keepers, withoutAgent } = parts
  const { manifest, ...content } = await openSaved(init, parts, async (name, paths, check) => {
    const looks = await looksOf(paths)
    if (checked.get(name) === looks) return
    await check()
    checked.set(name, looks)
  })
  if (!manifest.hasAgent && !withoutAgent)
    throw new AgentError(
      'FAILED_PRECONDITION',
      `${folder}: was saved without its agent, so clones would share random numbers, the host's name and hardware addresses, want without_agent`,
    )
  const saved = InstanceRecord.fromPartial(content.record)
  const replaced = new Set(Object.keys(init.replaceComponents))
  const { added, macs, record } = await cloneRecord(saved, { replaced, ofTemplate: isOfTemplate(init) })
  // Its keeper reads the file once for all clones.
  const privateMemory = isPrivate(saved, manifest)
    ? await keepers.keep(manifest.id, join(folder, FILES.memory))
    : ''
  const kept = new Set(record.layers.map(({ id }) => `disks/${id}.qcow2`))
  return {
    macs,
    record: { ...record, privateMemory },
    release: () => {
      if (privateMemory !== '') keepers.release(manifest.id)
    },
    start: (instance) => ({
      ...content.start(instance),
      step: 'clone',
      words: ['', folder, manifest.id],
      // An agent that is reached over the tap alone is told over it.
      keepsTapsDown: manifest.hasAgent && (manifest.unplugged !== '' || ownAddress(instance) !== undefined),
      macsBefore: new Map([...macs].map(([before, own]) => [own, before])),
      bring: async () => {
        const { context } = instance
        await atStep('import', 'files')
        for (const name of Object.keys(manifest.files)) {
          const isLayer = name.startsWith('disks/')
          if (LOADED.includes(name) || (isLayer && !kept.has(name))) continue
          await bring(join(folder, name), join(context.folder, name), isLayer ? 'link' : 'copy')
        }
        await makeOverlays(context.folder, added)
        // It may have been resumed meanwhile, which takes its files away.
        await refuseClaimed(folder)
        instance.recorded.timeline?.begin('machine')
      },
      load: () => load(instance, { folder, manifest, atStep, ownPlug }),
    }),
  }
}

/** QEMU alone reads and writes the memory of the machine, which was saved as a file. */
function isPrivate({ specification }: InstanceRecord, { memoryForm, unplugged }: Manifest): boolean {
  if (memoryForm !== 'file' || unplugged !== '' || specification === undefined) return false
  const backends = Object.entries(specification.backends).map(
    ([key, backend]) => [key, backendFromProto(key, backend)] as const,
  )
  return !needsSharedMemory(Object.fromEntries(backends))
}

async function refuseClaimed(folder: string): Promise<void> {
  const claim = await readClaim(folder)
  if (claim !== undefined) throw resumedAlready(folder, claim)
}

/** Differs once a file is another one, or was written. */
async function looksOf(paths: readonly string[]): Promise<string> {
  const looks = paths.map(async (path) => {
    const status = await stat(path, { bigint: true }).catch(() => undefined)
    return [path, status?.dev, status?.ino, status?.size, status?.mtimeNs].join(' ')
  })
  return (await Promise.all(looks)).join('\n')
}
