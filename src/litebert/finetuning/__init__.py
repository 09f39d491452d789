"""Fine-tuning: labelled files and a pretrained model -> a scored model folder and its report."""
