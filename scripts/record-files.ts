import { writeFileSync } from 'node:fs'
import { currentFileList, fileList } from '../src/image/guest-tree.ts'

/** `node scripts/record-files.ts`: records the files of the guest image in rootfs/files.txt. */
writeFileSync(fileList, await currentFileList((line) => console.error(line)))
