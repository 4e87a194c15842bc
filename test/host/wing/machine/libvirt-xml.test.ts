import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { AgentError } from '../../../../src/base/errors.ts'
import { extractPackage, fetchPackages } from '../../../../src/debian/packages.ts'
import { readDocument } from '../../../../src/host/machine/document/document.ts'
import { parseYaml } from '../../../../src/host/machine/document/parse-yaml.ts'
import { expand } from '../../../../src/host/machine/expand.ts'
import { domainXml } from '../../../../src/host/machine/libvirt/domain-xml.ts'
import { machineArguments } from '../../../../src/host/qemu/machine/machine-arguments.ts'
import { documents } from '../../../support/host-wing/any-document.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { nullBackends } from '../../../support/wing/fakes/null-backends.ts'
import { qemuBoard, qemuDevices } from '../../../support/wing/qemu-devices.ts'

const EXAMPLE = join(import.meta.dirname, '../../../fixtures/machines/kubevirt-vm.yaml')
const ANY_DOCUMENTS = 2000
const FETCH_MS = 180_000
const VIRSH_MS = 30_000

const Q35 = `
kind: VM
spec:
  features:
    iothreads: 2
    system: { guestAgent: true }
    graphics: { type: vnc }
    watchdog: true
    rng: true
    storage: [{ bootOrder: 1 }, { serial: data }]
  domain:
    devices:
      disks:
        - { target: { bus: virtio }, source: { file: /srv/a.img } }
        - { target: { bus: scsi }, source: { file: /srv/b.img } }
        - { device: cdrom, target: { bus: sata } }
`

/** Properties that libvirt sets and we do not, with the reason why the guest sees the same. */
const LIBVIRTS_OWN: Readonly<Record<string, string>> = {
  channel: '0 is the default',
  lun: '0 is the default of disks of SCSI',
  device_id: 'that of a disk with a serial is the serial',
  'write-cache': 'on is what a disk with a cache has',
  vram64_size_mb: 'memory above 4 GiB, which qxl makes as large as the one below unless it is told',
  port: 'a number that a root port shows of itself, 0 by default',
}

/** What one of both says of the board and the other does not, with the reason why the guest sees the same. */
const BOARD_OF_ONE: Readonly<Record<string, string>> = {
  '-machine acpi': 'on is the default',
  '-machine hpet': 'libvirt says -no-hpet',
  '-machine smm': 'off without secure boot; a guest without its firmware cannot tell',
  '-machine dump-guest-core': "is of the host's core files",
  '-cpu enforce': 'refuses a model that is not given whole, which libvirt checks itself',
  '-smp dies': '1 is the default',
  '-smp maxcpus': 'the count is the default',
  '-numa nodeid': 'libvirt wants a node for memory that can be added; a single one is the default then',
  '-numa memdev': 'names that each chooses itself',
  '-numa cpus 0': 'of that node',
  '-numa': 'the word node',
  '-rtc base': 'now in UTC, as a word or as a time',
  '-smbios type': 'libvirt repeats the UUID there',
  '-smbios uuid': 'the one of -uuid',
}

describe('libvirt', () => {
  const folder = temporaryFolder()
  beforeAll(async () => {
    const packages = [
      ...['libvirt0', 'libxml2-utils', 'libvirt-clients', 'libvirt-daemon-driver-qemu'],
      ...['libssh-4', 'libyajl2'],
    ]
    const fetched = await fetchPackages({ suite: 'bookworm', packages, progress: () => {} })
    for (const { path } of fetched) await extractPackage(path, folder)
  }, FETCH_MS)

  /** What virt-xml-validate does. Throws with what the schema does not accept. */
  function validate(texts: readonly string[]): void {
    const files = texts.map((text, index) => {
      const file = join(folder, `${index}.xml`)
      writeFileSync(file, text)
      return file
    })
    const schema = join(folder, 'usr/share/libvirt/schemas/domain.rng')
    execFileSync(join(folder, 'usr/bin/xmllint'), ['--noout', '--relaxng', schema, ...files], {
      stdio: 'pipe',
    })
  }

  /** QEMU's arguments as libvirt makes them of a domain. It runs as an ordinary user, in a mount namespace with its files. */
  function libvirtsWords(xml: string): readonly string[] {
    const home = join(folder, 'home')
    mkdirSync(join(home, 'run'), { recursive: true, mode: 0o700 })
    writeFileSync(join(home, 'domain.xml'), xml)
    const libraries = join(folder, 'usr/lib/x86_64-linux-gnu')
    const script = [
      `mount -t overlay overlay -o lowerdir=${folder}/usr/share:/usr/share /usr/share`,
      `chown -R nobody ${home}`,
      `exec setpriv --reuid=nobody --regid=nogroup --clear-groups ${folder}/usr/bin/virsh -c 'qemu:///embed?root=${home}' domxml-to-native qemu-argv ${home}/domain.xml`,
    ].join(' && ')
    const env = {
      ...{ PATH: '/usr/sbin:/usr/bin:/sbin:/bin', HOME: home, XDG_RUNTIME_DIR: join(home, 'run') },
      ...{ LD_LIBRARY_PATH: libraries, LIBVIRT_DRIVER_DIR: join(libraries, 'libvirt/connection-driver') },
    }
    for (const path of [folder, home]) chmodSync(path, 0o755)
    const output = execFileSync('unshare', ['-m', 'sh', '-c', script], {
      env,
      timeout: VIRSH_MS,
      encoding: 'utf8',
    })
    // Words in quotes are those with spaces or braces; none of them has a quote.
    return [...output.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '')
  }

  it.each([
    ['the example of the proposal', () => readFileSync(EXAMPLE, 'utf8')],
    ['a machine of q35', () => Q35],
  ])('makes the same board and devices of %s as we do', (_, text) => {
    const { backends, devices, ...rest } = expand(readDocument(parseYaml(text())), { isPrivileged: true })
    // With a card libvirt waits for ever, because no daemon answers for its network.
    const without = Object.entries(devices).filter(([key]) => !key.startsWith('nic'))
    const machine = { ...rest, backends, devices: Object.fromEntries(without) }
    const provide = nullBackends(folder)
    const words = machineArguments(machine, { acceleration: 'kvm', nowMs: 0, provide })
    const ours = qemuDevices(words)
    const xml = domainXml(machine)
      .replace(/<listen .*>/, '<listen type="none"/>')
      .replace(' type="kvm"', ' type="qemu"')
    const libvirts = libvirtsWords(xml)
    const common = (board: Readonly<Record<string, string>>) =>
      Object.fromEntries(Object.entries(board).filter(([name]) => !(name in BOARD_OF_ONE)))
    expect(common(qemuBoard(words))).toEqual(common(qemuBoard(libvirts)))
    const theirs = qemuDevices(libvirts)
    expect(ours.map(({ name }) => name).sort()).toEqual(theirs.map(({ name }) => name).sort())
    for (const { name, properties } of ours) {
      const other = theirs.find((device) => device.name === name)?.properties ?? {}
      const own = Object.fromEntries(
        Object.entries(other).filter(([key]) => key in properties || !(key in LIBVIRTS_OWN)),
      )
      expect({ name, ...properties, lun: '' }).toEqual({ name, ...own, lun: '' })
    }
  })

  it('accepts the example of the proposal by its schema', () => {
    const document = readDocument(parseYaml(readFileSync(EXAMPLE, 'utf8')))
    const xml = domainXml(expand(document, { isPrivileged: true }))
    expect(() => validate([xml])).not.toThrow()
  })

  it('refuses by its schema what is no domain', () => {
    expect(() => validate(['<domain type="kvm"><name>a</name><memory>1</memory><odd/></domain>'])).toThrow(
      'odd',
    )
  })

  it('accepts by its schema the machine of any document that libvirt has words for', () => {
    const texts = fc.sample(documents, ANY_DOCUMENTS).flatMap((value) => {
      try {
        return [domainXml(expand(readDocument(value), { isPrivileged: false }))]
      } catch (error) {
        expect(error).toBeInstanceOf(AgentError)
        return []
      }
    })
    expect(() => validate(texts)).not.toThrow()
    expect(texts.length).toBeGreaterThan(100)
  })
})
